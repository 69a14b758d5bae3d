import com.alibaba.fastjson2.JSON;
import com.alibaba.fastjson2.JSONWriter;
import com.alibaba.otter.canal.common.AbstractCanalLifeCycle;
import com.alibaba.otter.canal.common.alarm.LogAlarmHandler;
import com.alibaba.otter.canal.connector.core.producer.MQMessageUtils;
import com.alibaba.otter.canal.filter.aviater.AviaterRegexFilter;
import com.alibaba.otter.canal.parse.index.MemoryLogPositionManager;
import com.alibaba.otter.canal.parse.inbound.mysql.MysqlEventParser;
import com.alibaba.otter.canal.parse.inbound.mysql.tsdb.MemoryTableMeta;
import com.alibaba.otter.canal.parse.inbound.mysql.tsdb.TableMetaTSDB;
import com.alibaba.otter.canal.parse.inbound.mysql.tsdb.TableMetaTSDBFactory;
import com.alibaba.otter.canal.parse.support.AuthenticationInfo;
import com.alibaba.otter.canal.protocol.CanalEntry.Entry;
import com.alibaba.otter.canal.protocol.FlatMessage;
import com.alibaba.otter.canal.protocol.Message;
import com.alibaba.otter.canal.protocol.position.EntryPosition;
import com.alibaba.otter.canal.sink.CanalEventSink;
import java.io.PrintStream;
import java.net.InetSocketAddress;
import java.util.List;
import java.util.concurrent.Executors;
import java.util.concurrent.ThreadPoolExecutor;

/** Canal's parser, from the first file of a server on, with definitions of tables from the log: flat messages, a line each. */
public class Canal {
    public static void main(String[] words) throws Exception {
        PrintStream lines = new PrintStream(System.out, true, "UTF-8");
        System.setOut(System.err);
        MysqlEventParser parser = new MysqlEventParser();
        parser.setDestination("canal");
        parser.setSlaveId(78);
        parser.setDetectingEnable(false);
        parser.setConnectionCharset("UTF-8");
        parser.setMasterInfo(new AuthenticationInfo(new InetSocketAddress("127.0.0.1", Integer.parseInt(words[0])), "root", "x"));
        parser.setMasterPosition(new EntryPosition("bin.000001", 4L));
        parser.setEventFilter(new AviaterRegexFilter(".*\\..*"));
        parser.setAlarmHandler(new LogAlarmHandler());
        MemoryLogPositionManager positions = new MemoryLogPositionManager();
        positions.start();
        parser.setLogPositionManager(positions);
        parser.setTableMetaTSDBFactory(new FromTheLog());
        parser.setTsdbJdbcUrl("");
        parser.setTsdbJdbcUserName("");
        parser.setTsdbJdbcPassword("");
        parser.setEnableTsdb(true);
        parser.setIsGTIDMode(false);
        parser.setParallel(false);
        parser.setEventSink(new Sink(lines));
        parser.start();
        Thread.sleep(60_000);
        System.exit(1);
    }
}

class FromTheLog implements TableMetaTSDBFactory {
    public TableMetaTSDB build(String destination, String xml) {
        return new MemoryTableMeta() {
            public boolean rollback(EntryPosition position) {
                return true;
            }
        };
    }

    public void destory(String destination) {}
}

class Sink extends AbstractCanalLifeCycle implements CanalEventSink<List<Entry>> {
    private final PrintStream lines;
    private final ThreadPoolExecutor pool = (ThreadPoolExecutor) Executors.newFixedThreadPool(1);

    Sink(PrintStream lines) {
        this.lines = lines;
    }

    public boolean sink(List<Entry> entries, InetSocketAddress address, String destination) {
        for (FlatMessage one : MQMessageUtils.messageConverter(MQMessageUtils.buildMessageData(new Message(1, entries), pool), 1)) {
            lines.println(JSON.toJSONString(one, JSONWriter.Feature.WriteNulls));
            if ("the_end".equals(one.getTable())) {
                System.exit(0);
            }
        }
        return true;
    }

    public void interrupt() {}
}
