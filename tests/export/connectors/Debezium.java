import io.debezium.engine.ChangeEvent;
import io.debezium.engine.DebeziumEngine;
import io.debezium.engine.format.Json;
import io.debezium.engine.format.KeyValueHeaderChangeEventFormat;
import java.io.PrintStream;
import java.util.Properties;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.Executors;
import java.util.concurrent.TimeUnit;

/** Debezium's engine, from the first file of a server on: topic, key, value and headers of each message, a line each. */
public class Debezium {
    private static final String END = "the_end";

    public static void main(String[] words) throws Exception {
        PrintStream lines = new PrintStream(System.out, true, "UTF-8");
        System.setOut(System.err);
        CountDownLatch ended = new CountDownLatch(1);
        DebeziumEngine<ChangeEvent<String, String>> engine = DebeziumEngine
            .create(KeyValueHeaderChangeEventFormat.of(Json.class, Json.class, Json.class))
            .using(properties(words[0], words[1]))
            .notifying(one -> {
                lines.println("{\"topic\":\"" + one.destination() + "\",\"headers\":" + headers(one) + ",\"key\":" + one.key()
                    + ",\"value\":" + one.value() + "}");
                if (one.destination().equals("shop1") && one.value().contains(END)) {
                    ended.countDown();
                }
            })
            .build();
        Executors.newSingleThreadExecutor().execute(engine);
        System.exit(ended.await(100, TimeUnit.SECONDS) ? 0 : 1);
    }

    private static String headers(ChangeEvent<String, String> one) {
        StringBuilder made = new StringBuilder("{");
        for (io.debezium.engine.Header<Object> header : one.<Object>headers()) {
            made.append(made.length() > 1 ? "," : "").append('"').append(header.getKey()).append("\":").append(header.getValue());
        }
        return made + "}";
    }

    private static Properties properties(String port, String server) {
        Properties made = new Properties();
        String[][] all = {
            {"name", "engine"}, {"connector.class", "io.debezium.connector.mysql.MySqlConnector"},
            {"offset.storage", "org.apache.kafka.connect.storage.MemoryOffsetBackingStore"},
            {"schema.history.internal", "io.debezium.relational.history.MemorySchemaHistory"},
            {"database.hostname", "127.0.0.1"}, {"database.port", port}, {"database.user", "root"},
            {"database.password", "x"}, {"database.server.id", "79"}, {"database.ssl.mode", "disabled"},
            {"topic.prefix", "shop1"}, {"snapshot.mode", "never"}, {"include.query", "true"},
            {"skipped.operations", "none"}, {"provide.transaction.metadata", "true"}, {"include.schema.changes", "true"},
            {"bigint.unsigned.handling.mode", "long"}, {"key.converter.schemas.enable", "false"},
            {"value.converter.schemas.enable", "false"}, {"header.converter.schemas.enable", "false"},
            {"converter.schemas.enable", "false"},
        };
        for (String[] one : all) {
            made.setProperty(one[0], one[1]);
        }
        if (server.startsWith("mariadb")) {
            made.setProperty("connector.adapter", "mariadb");
        }
        return made;
    }
}
