/* What generated C code stands on: loads and stores at proven addresses, Python's division and shifts, CRCs.

   Built with -fwrapv: sums and products wrap. No function here reads or writes outside of what it is given. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#define EXPORT __attribute__((visibility("default"), used))
#define INLINE static inline __attribute__((always_inline, unused))

typedef struct { int64_t v[2]; } values2;
typedef struct { int64_t v[3]; } values3;
typedef struct { int64_t v[4]; } values4;
typedef struct { int64_t v[5]; } values5;
typedef struct { int64_t v[6]; } values6;
typedef struct { int64_t v[7]; } values7;
typedef struct { int64_t v[8]; } values8;

#if __BYTE_ORDER__ == __ORDER_BIG_ENDIAN__
#define IS_BIG 1
#else
#define IS_BIG 0
#endif
#define SWAP1(value) (value)
#define SWAP2(value) __builtin_bswap16(value)
#define SWAP4(value) __builtin_bswap32(value)
#define SWAP8(value) __builtin_bswap64(value)
#define LOADER(name, size, bits, kind, big)                                                                            \
    INLINE int64_t name(int64_t address) {                                                                             \
        uint##bits##_t value;                                                                                          \
        memcpy(&value, (const void *)(intptr_t)address, size);                                                         \
        if (big != IS_BIG) value = (uint##bits##_t)SWAP##size(value);                                                  \
        return (int64_t)(kind##bits##_t)value;                                                                         \
    }
LOADER(load_u1, 1, 8, uint, IS_BIG)
LOADER(load_i1, 1, 8, int, IS_BIG)
LOADER(load_u2_little, 2, 16, uint, 0)
LOADER(load_u2_big, 2, 16, uint, 1)
LOADER(load_i2_little, 2, 16, int, 0)
LOADER(load_i2_big, 2, 16, int, 1)
LOADER(load_u4_little, 4, 32, uint, 0)
LOADER(load_u4_big, 4, 32, uint, 1)
LOADER(load_i4_little, 4, 32, int, 0)
LOADER(load_i4_big, 4, 32, int, 1)
LOADER(load_i8_little, 8, 64, int, 0)
LOADER(load_i8_big, 8, 64, int, 1)
LOADER(load_i8_native, 8, 64, int, IS_BIG)

INLINE void store_u1(int64_t address, int64_t value) { *(uint8_t *)(intptr_t)address = (uint8_t)value; }
INLINE void store_i8_native(int64_t address, int64_t value) { memcpy((void *)(intptr_t)address, &value, 8); }
INLINE void store_i8_little(int64_t address, int64_t value) {
    store_i8_native(address, IS_BIG ? (int64_t)SWAP8((uint64_t)value) : value);
}

/* In steps of eight: up to seven bytes more than `size` are read and written. */
INLINE int64_t copy(int64_t source, int64_t target, int64_t size) {
    for (int64_t k = 0; k < size; k += 8) {
        uint64_t word;
        memcpy(&word, (const void *)(intptr_t)(source + k), 8);
        memcpy((void *)(intptr_t)(target + k), &word, 8);
    }
    return size;
}

INLINE int64_t floor_div(int64_t a, int64_t b) {
    if (b == 0) return 0;
    if (b == -1) return (int64_t)(0 - (uint64_t)a);
    int64_t quotient = a / b;
    return a % b != 0 && (a < 0) != (b < 0) ? quotient - 1 : quotient;
}
INLINE int64_t floor_mod(int64_t a, int64_t b) {
    if (b == 0 || b == -1) return 0;
    int64_t rest = a % b;
    return rest != 0 && (rest < 0) != (b < 0) ? rest + b : rest;
}
INLINE int64_t shift_left(int64_t a, int64_t b) { return (uint64_t)b > 63 ? 0 : (int64_t)((uint64_t)a << b); }
INLINE int64_t shift_right(int64_t a, int64_t b) { return a >> ((uint64_t)b > 63 ? 63 : b); }
INLINE int64_t min_of(int64_t a, int64_t b) { return b < a ? b : a; }
INLINE int64_t max_of(int64_t a, int64_t b) { return b > a ? b : a; }
INLINE int64_t abs_of(int64_t a) { return a < 0 ? -a : a; }

/* -- columns ---------------------------------------------------------------------------------------------------- */

/* Is a value in a column? */
EXPORT int64_t column_holds(const int64_t *column, int64_t count, int64_t value) {
    int64_t found = 0;
    for (int64_t i = 0; i < count && !found;) {
        int64_t stop = count - i < 1024 ? count : i + 1024;
        for (; i < stop; i++) found |= column[i] == value;
    }
    return found;
}

/* The first span in [first, count) that does not lie in a buffer of `size` bytes; -1 = they all do. */
EXPORT int64_t span_outside(const int64_t *starts, const int64_t *ends, int64_t first, int64_t count, int64_t size) {
    for (int64_t i = first; i < count; i++)
        if (starts[i] < 0 || ends[i] < starts[i] || ends[i] > size) return i;
    return -1;
}

/* -- CRCs ------------------------------------------------------------------------------------------------------- */

/* All polynomials are reflected: bit i of a word of n bits is the coefficient of x^(n-1-i), the first byte is the
   lowest. `fold`: what both words of a register of 128 bits are multiplied with to pass over the distance. */
typedef struct {
    uint32_t table[8][256];
    uint64_t fold_lanes[2], fold_one[2], fold_last[2], reduce[2], barrett[2];
    uint32_t poly;
    int32_t by_product;
} crc_tables;

/* x^exponent modulo the polynomial, as a reflected word of 32 bits. */
static uint32_t crc_power(uint32_t poly, int exponent) {
    uint32_t value = UINT32_C(0x80000000);
    while (exponent-- > 0) value = value >> 1 ^ (value & 1 ? poly : 0);
    return value;
}

/* x^64 divided by the polynomial: 33 coefficients, reflected. */
static uint64_t crc_quotient(uint32_t poly) {
    uint64_t quotient = 1;
    uint32_t rest = poly; /* of x^32 */
    for (int bit = 1; bit <= 32; bit++) {
        quotient |= (uint64_t)(rest & 1) << bit;
        rest = rest >> 1 ^ (rest & 1 ? poly : 0);
    }
    return quotient;
}

static uint32_t crc_by_table(const crc_tables *t, const uint8_t *p, int64_t n, uint32_t r) {
    for (; n >= 8; n -= 8, p += 8) {
        uint32_t low = (uint32_t)load_u4_little((int64_t)(intptr_t)p) ^ r;
        uint32_t high = (uint32_t)load_u4_little((int64_t)(intptr_t)(p + 4));
        r = t->table[7][low & 255] ^ t->table[6][low >> 8 & 255] ^ t->table[5][low >> 16 & 255] ^ t->table[4][low >> 24]
          ^ t->table[3][high & 255] ^ t->table[2][high >> 8 & 255] ^ t->table[1][high >> 16 & 255]
          ^ t->table[0][high >> 24];
    }
    for (; n > 0; n--) r = t->table[0][(r ^ *p++) & 255] ^ r >> 8;
    return r;
}

#if defined(__x86_64__)
#include <cpuid.h>
#include <smmintrin.h>
#include <wmmintrin.h>
#define PRODUCT __attribute__((target("pclmul,ssse3,sse4.1")))

static int has_product(void) {
    unsigned a, b, c, d;
    return __get_cpuid(1, &a, &b, &c, &d) && (c & bit_PCLMUL) && (c & bit_SSSE3) && (c & bit_SSE4_1);
}

PRODUCT static inline __attribute__((always_inline)) __m128i folded(__m128i words, __m128i by) {
    return _mm_xor_si128(_mm_clmulepi64_si128(words, by, 0x00), _mm_clmulepi64_si128(words, by, 0x11));
}
#define BLOCK(at) _mm_loadu_si128((const __m128i *)(at))

/* n >= 16. The first step takes 1..16 bytes, with zeros in front of them: there is no tail. */
PRODUCT static uint32_t crc_by_product(const crc_tables *t, const uint8_t *p, int64_t n, uint32_t r) {
    static const uint8_t places[32] = {128, 128, 128, 128, 128, 128, 128, 128, 128, 128, 128, 128, 128, 128, 128, 128,
                                       0,   1,   2,   3,   4,   5,   6,   7,   8,   9,   10,  11,  12,  13,  14,  15};
    int64_t size = ((n - 1) & 15) + 1;
    const uint8_t *end = p + n;
    __m128i place = BLOCK(places + size), one = BLOCK(t->fold_one);
    __m128i start = _mm_xor_si128(BLOCK(p), _mm_cvtsi32_si128((int)r));
    __m128i words = _mm_shuffle_epi8(start, place);
    p += size;
    if (p != end) {
        /* what of the register lies behind the first step */
        uint32_t rest = size < 4 ? r >> 8 * size : 0;
        words = _mm_xor_si128(folded(words, one), _mm_xor_si128(BLOCK(p), _mm_cvtsi32_si128((int)rest)));
        p += 16;
    }
    if (end - p >= 128) {
        __m128i lanes = BLOCK(t->fold_lanes);
        while ((end - p) & 63) words = _mm_xor_si128(folded(words, one), BLOCK(p)), p += 16;
        __m128i a = _mm_xor_si128(folded(words, one), BLOCK(p)), b = BLOCK(p + 16), c = BLOCK(p + 32), d = BLOCK(p + 48);
        for (p += 64; p != end; p += 64) {
            a = _mm_xor_si128(folded(a, lanes), BLOCK(p));
            b = _mm_xor_si128(folded(b, lanes), BLOCK(p + 16));
            c = _mm_xor_si128(folded(c, lanes), BLOCK(p + 32));
            d = _mm_xor_si128(folded(d, lanes), BLOCK(p + 48));
        }
        b = _mm_xor_si128(folded(a, one), b);
        c = _mm_xor_si128(folded(b, one), c);
        words = _mm_xor_si128(folded(c, one), d);
    }
    for (; p != end; p += 16) words = _mm_xor_si128(folded(words, one), BLOCK(p));
    /* multiplied by x^32, then reduced to 64 and by Barrett's way to 32 bits */
    words = folded(words, BLOCK(t->fold_last));
    words = _mm_xor_si128(_mm_clmulepi64_si128(words, BLOCK(t->reduce), 0x00), words);
    uint64_t word = (uint64_t)_mm_extract_epi64(words, 1);
    __m128i barrett = BLOCK(t->barrett), top = _mm_cvtsi64_si128((int64_t)(word & UINT32_MAX));
    __m128i estimate = _mm_clmulepi64_si128(top, barrett, 0x00);
    estimate = _mm_cvtsi64_si128((int64_t)((uint64_t)_mm_cvtsi128_si64(estimate) & UINT32_MAX));
    uint64_t whole = (uint64_t)_mm_cvtsi128_si64(_mm_clmulepi64_si128(estimate, barrett, 0x10));
    return (uint32_t)((word ^ whole) >> 32);
}
#else
static int has_product(void) { return 0; }
static uint32_t crc_by_product(const crc_tables *t, const uint8_t *p, int64_t n, uint32_t r) {
    return crc_by_table(t, p, n, r);
}
#endif

static uint64_t wide(uint32_t value) { return (uint64_t)value << 32; }

/* The constants of a polynomial (reflected, without its top coefficient). */
static void crc_fill(crc_tables *t, int64_t reflected, int64_t products) {
    uint32_t poly = t->poly = (uint32_t)reflected;
    (void)wide;
    for (uint32_t byte = 0; byte < 256; byte++) {
        uint32_t value = byte;
        for (int bit = 0; bit < 8; bit++) value = value >> 1 ^ (value & 1 ? poly : 0);
        t->table[0][byte] = value;
    }
    for (int step = 1; step < 8; step++)
        for (int byte = 0; byte < 256; byte++)
            t->table[step][byte] = t->table[step - 1][byte] >> 8 ^ t->table[0][t->table[step - 1][byte] & 255];
    t->fold_lanes[0] = wide(crc_power(poly, 512 + 63)), t->fold_lanes[1] = wide(crc_power(poly, 512 - 1));
    t->fold_one[0] = wide(crc_power(poly, 128 + 63)), t->fold_one[1] = wide(crc_power(poly, 128 - 1));
    t->fold_last[0] = wide(crc_power(poly, 95)), t->fold_last[1] = wide(crc_power(poly, 31));
    t->reduce[0] = wide(crc_power(poly, 63));
    t->barrett[0] = crc_quotient(poly), t->barrett[1] = (uint64_t)poly << 1 | 1;
    t->by_product = products && has_product();
}

/* The same for `crc_run`; 0 = no memory. */
EXPORT int64_t crc_tables_of(int64_t reflected, int64_t products) {
    crc_tables *t = calloc(1, sizeof *t);
    if (t != NULL) crc_fill(t, reflected, products);
    return (int64_t)(intptr_t)t;
}

/* The register behind `count` bytes. */
static int64_t crc_run(int64_t table, int64_t pointer, int64_t count, int64_t before) {
    const crc_tables *t = (const crc_tables *)(intptr_t)table;
    const uint8_t *p = (const uint8_t *)(intptr_t)pointer;
    return t->by_product && count >= 16 ? crc_by_product(t, p, count, (uint32_t)before)
                                        : crc_by_table(t, p, count, (uint32_t)before);
}

EXPORT int64_t crc_of(int64_t table, int64_t pointer, int64_t count, int64_t before) {
    return crc_run(table, pointer, count, before);
}

/* The CRC-32 of `buf[p:n]`. (`layout.compute_crc32`) */
INLINE int64_t crc32_bytes(int64_t buf, int64_t p, int64_t n) {
    static crc_tables tables;
    static int filled = 0; /* threads that come at once fill in the same */
    if (!__atomic_load_n(&filled, __ATOMIC_ACQUIRE)) {
        crc_fill(&tables, INT64_C(0xEDB88320), 1);
        __atomic_store_n(&filled, 1, __ATOMIC_RELEASE);
    }
    return crc_run((int64_t)(intptr_t)&tables, buf + p, n - p, INT64_C(0xFFFFFFFF)) ^ INT64_C(0xFFFFFFFF);
}

/* -- base64 ----------------------------------------------------------------------------------------------------- */

#define DIGITS "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/"

#if defined(__x86_64__)
/* Twelve bytes become sixteen digits, as long as sixteen bytes are there. Returns how many bytes were taken. */
PRODUCT static int64_t base64_by_shuffle(const uint8_t *p, int64_t n, uint8_t *out) {
    const __m128i places = _mm_setr_epi8(1, 0, 2, 1, 4, 3, 5, 4, 7, 6, 8, 7, 10, 9, 11, 10);
    /* what is added to a number: by the class of its digit, a-z, ten times 0-9, +, /, A-Z */
    const __m128i shifts = _mm_setr_epi8(71, -4, -4, -4, -4, -4, -4, -4, -4, -4, -4, -19, -16, 65, 0, 0);
    int64_t at = 0;
    for (; n - at >= 16; at += 12, out += 16) {
        __m128i words = _mm_shuffle_epi8(_mm_loadu_si128((const __m128i *)(p + at)), places);
        __m128i first = _mm_mulhi_epu16(_mm_and_si128(words, _mm_set1_epi32(0x0FC0FC00)), _mm_set1_epi32(0x04000040));
        __m128i second = _mm_mullo_epi16(_mm_and_si128(words, _mm_set1_epi32(0x003F03F0)), _mm_set1_epi32(0x01000010));
        __m128i numbers = _mm_or_si128(first, second);
        __m128i classes = _mm_subs_epu8(numbers, _mm_set1_epi8(51));
        __m128i capitals = _mm_and_si128(_mm_cmpgt_epi8(_mm_set1_epi8(26), numbers), _mm_set1_epi8(13));
        __m128i shift = _mm_shuffle_epi8(shifts, _mm_or_si128(classes, capitals));
        _mm_storeu_si128((__m128i *)out, _mm_add_epi8(numbers, shift));
    }
    return at;
}

static int shuffles(void) {
    static int known = -1; /* the processor is asked once: that takes long in virtual machines */
    if (known < 0) known = has_product();
    return known;
}
#else
static int64_t base64_by_shuffle(const uint8_t *p, int64_t n, uint8_t *out) { return 0; }
static int shuffles(void) { return 0; }
#endif

/* `size` bytes as digits, with `=` behind the last ones; returns how many there are. quickly: as the processor can. */
static int64_t base64_of(const uint8_t *p, int64_t size, uint8_t *out, int quickly) {
    static const char digits[] = DIGITS;
    uint8_t *o = out;
    int64_t at = quickly ? base64_by_shuffle(p, size, out) : 0;
    for (o += at / 3 * 4; size - at >= 3; at += 3, o += 4) {
        uint32_t three = (uint32_t)p[at] << 16 | (uint32_t)p[at + 1] << 8 | p[at + 2];
        o[0] = digits[three >> 18], o[1] = digits[three >> 12 & 63], o[2] = digits[three >> 6 & 63];
        o[3] = digits[three & 63];
    }
    if (size > at) {
        uint32_t three = (uint32_t)p[at] << 16 | (size - at > 1 ? (uint32_t)p[at + 1] << 8 : 0);
        o[0] = digits[three >> 18], o[1] = digits[three >> 12 & 63];
        o[2] = size - at > 1 ? digits[three >> 6 & 63] : '=', o[3] = '=';
        o += 4;
    }
    return o - out;
}

/* For tests. */
EXPORT int64_t base64_run(const uint8_t *p, int64_t size, uint8_t *out, int64_t quickly) {
    return base64_of(p, size, out, quickly && shuffles());
}

/* A line of the bytes `buf[p:n]` at `out[o]`; where it ends. (`event_statements.write_base64`) */
INLINE int64_t base64_line(int64_t buf, int64_t p, int64_t n, int64_t out, int64_t o) {
    uint8_t *target = (uint8_t *)(intptr_t)(out + o);
    int64_t size = base64_of((const uint8_t *)(intptr_t)(buf + p), n - p, target, shuffles());
    target[size] = '\n';
    return o + size + 1;
}

/* -- texts of statements ---------------------------------------------------------------------------------------- */

static int is_sign(uint8_t c, uint8_t mark) {
    if (c == '\\' || c == '/' || c == '\n') return 1;
    if (mark) return c == mark;
    return c == '\'' || c == '"' || c == '`' || c == '#' || c == '$' || c == '-' || c == ';';
}

#if defined(__x86_64__)
/* A bit for each of sixteen bytes that is a sign. */
static int signs_of(const uint8_t *p, uint8_t mark) {
    __m128i text = _mm_loadu_si128((const __m128i *)p);
    __m128i found = _mm_or_si128(_mm_cmpeq_epi8(text, _mm_set1_epi8('\\')), _mm_cmpeq_epi8(text, _mm_set1_epi8('\n')));
    if (mark) {
        found = _mm_or_si128(found, _mm_cmpeq_epi8(text, _mm_set1_epi8('/')));
        return _mm_movemask_epi8(_mm_or_si128(found, _mm_cmpeq_epi8(text, _mm_set1_epi8((char)mark))));
    }
    __m128i even = _mm_and_si128(text, _mm_set1_epi8((char)0xFE)), minus = _mm_and_si128(text, _mm_set1_epi8((char)0xFD));
    found = _mm_or_si128(found, _mm_cmpeq_epi8(even, _mm_set1_epi8('"')));  /* and # */
    found = _mm_or_si128(found, _mm_cmpeq_epi8(minus, _mm_set1_epi8('-'))); /* and / */
    found = _mm_or_si128(found, _mm_cmpeq_epi8(text, _mm_set1_epi8('\'')));
    found = _mm_or_si128(found, _mm_cmpeq_epi8(text, _mm_set1_epi8('$')));
    found = _mm_or_si128(found, _mm_cmpeq_epi8(text, _mm_set1_epi8(';')));
    return _mm_movemask_epi8(_mm_or_si128(found, _mm_cmpeq_epi8(text, _mm_set1_epi8('`'))));
}
#endif

/* Where the next byte of `p[at:n]` is that may mean something beside itself; `n` = nowhere. mark: the quotation mark
   that is open, or 0. */
static int64_t next_sign(const uint8_t *p, int64_t at, int64_t n, uint8_t mark) {
#if defined(__x86_64__)
    for (; n - at >= 16; at += 16) {
        int found = signs_of(p + at, mark);
        if (found) return at + __builtin_ctz(found);
    }
#endif
    while (at < n && !is_sign(p[at], mark)) at++;
    return at;
}

/* (`sql.kernels.texts.plain_text`) */
static int64_t plain_text(int64_t buf, int64_t at, int64_t n, int64_t escapes) {
    const uint8_t *p = (const uint8_t *)(intptr_t)buf;
    uint8_t mark = 0;
    int64_t found = 1;
    while ((at = next_sign(p, at, n, mark)) < n) {
        uint8_t c = p[at++], behind = at < n ? p[at] : 0;
        if (c == '\n') {
            if ((behind | 32) == 'd') return 0;
        } else if (c == '\\') {
            if (mark != '\'' || !escapes || !behind || behind == '\n') return 0;
            if (behind == '\'') found = 2;
            at++;
        } else if (c == '/') {
            if (behind == '*') return 0;
        } else if (mark) {
            mark = 0;
        } else if (c == '#' || c == '$' || c == '-' || c == ';') {
            if (c != '-' || behind == '-') return 0;
        } else {
            mark = c;
        }
    }
    return mark == 0 && at == n ? found : 0;
}

/* -- rows by their keys (`formats/keeping.py`) -------------------------------------------------------------------- */

INLINE int64_t copy_bytes(int64_t buf, int64_t p, int64_t n, int64_t out, int64_t o) {
    memmove((void *)(intptr_t)(out + o), (const void *)(intptr_t)(buf + p), (size_t)(n - p));
    return o + n - p;
}

INLINE int64_t same_bytes(int64_t buf, int64_t p, int64_t texts, int64_t q, int64_t size) {
    return memcmp((const void *)(intptr_t)(buf + p), (const void *)(intptr_t)(texts + q), (size_t)size) == 0;
}

/* The product's two halves together. */
INLINE uint64_t folded_product(uint64_t a, uint64_t b) {
    unsigned __int128 product = (unsigned __int128)a * b;
    return (uint64_t)product ^ (uint64_t)(product >> 64);
}

static int64_t hash_bytes(int64_t texts, int64_t p, int64_t size, int64_t seed) {
    const uint8_t *at = (const uint8_t *)(intptr_t)(texts + p), *end = at + size;
    uint64_t value = (uint64_t)seed ^ (uint64_t)size * UINT64_C(0xD6E8FEB86659FD93);
    for (; at < end; at += 8) {
        uint64_t word = 0;
        if (end - at >= 8)
            word = (uint64_t)load_i8_little((int64_t)(intptr_t)at);
        else
            for (int i = 0; i < end - at; i++) word |= (uint64_t)at[i] << 8 * i;
        value = folded_product(value ^ word, UINT64_C(0x9E3779B97F4A7C15));
        value = folded_product(value ^ (uint64_t)seed, UINT64_C(0xD6E8FEB86659FD93));
    }
    return (int64_t)value;
}

/* BLAKE2b (RFC 7693) without a key. */
typedef struct {
    uint64_t h[8], count;
    uint8_t block[128];
    size_t used;
} blake2b_state;

static const uint64_t blake2b_start[8] = {
    UINT64_C(0x6a09e667f3bcc908), UINT64_C(0xbb67ae8584caa73b), UINT64_C(0x3c6ef372fe94f82b),
    UINT64_C(0xa54ff53a5f1d36f1), UINT64_C(0x510e527fade682d1), UINT64_C(0x9b05688c2b3e6c1f),
    UINT64_C(0x1f83d9abfb41bd6b), UINT64_C(0x5be0cd19137e2179)};

static const uint8_t blake2b_order[12][16] = {
    {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15},  {14, 10, 4, 8, 9, 15, 13, 6, 1, 12, 0, 2, 11, 7, 5, 3},
    {11, 8, 12, 0, 5, 2, 15, 13, 10, 14, 3, 6, 7, 1, 9, 4},  {7, 9, 3, 1, 13, 12, 11, 14, 2, 6, 5, 10, 4, 0, 15, 8},
    {9, 0, 5, 7, 2, 4, 10, 15, 14, 1, 11, 12, 6, 8, 3, 13},  {2, 12, 6, 10, 0, 11, 8, 3, 4, 13, 7, 5, 15, 14, 1, 9},
    {12, 5, 1, 15, 14, 13, 4, 10, 0, 7, 6, 3, 9, 2, 8, 11},  {13, 11, 7, 14, 12, 1, 3, 9, 5, 0, 15, 4, 8, 6, 2, 10},
    {6, 15, 14, 9, 11, 3, 0, 8, 12, 2, 13, 7, 1, 4, 10, 5},  {10, 2, 8, 4, 7, 6, 1, 5, 15, 11, 9, 14, 3, 12, 13, 0},
    {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15},  {14, 10, 4, 8, 9, 15, 13, 6, 1, 12, 0, 2, 11, 7, 5, 3}};

#define ROTATED(word, by) ((word) >> (by) | (word) << (64 - (by)))
#define MIXED(a, b, c, d, x, y)                                                                                        \
    v[a] += v[b] + (x), v[d] = ROTATED(v[d] ^ v[a], 32), v[c] += v[d], v[b] = ROTATED(v[b] ^ v[c], 24);               \
    v[a] += v[b] + (y), v[d] = ROTATED(v[d] ^ v[a], 16), v[c] += v[d], v[b] = ROTATED(v[b] ^ v[c], 63)

static void blake2b_block(blake2b_state *s, int last) {
    uint64_t v[16], m[16];
    for (int i = 0; i < 16; i++) m[i] = (uint64_t)load_i8_little((int64_t)(intptr_t)(s->block + 8 * i));
    for (int i = 0; i < 8; i++) v[i] = s->h[i], v[i + 8] = blake2b_start[i];
    v[12] ^= s->count;
    if (last) v[14] = ~v[14];
#pragma GCC unroll 12
    for (int round = 0; round < 12; round++) {
        const uint8_t *o = blake2b_order[round];
        MIXED(0, 4, 8, 12, m[o[0]], m[o[1]]);
        MIXED(1, 5, 9, 13, m[o[2]], m[o[3]]);
        MIXED(2, 6, 10, 14, m[o[4]], m[o[5]]);
        MIXED(3, 7, 11, 15, m[o[6]], m[o[7]]);
        MIXED(0, 5, 10, 15, m[o[8]], m[o[9]]);
        MIXED(1, 6, 11, 12, m[o[10]], m[o[11]]);
        MIXED(2, 7, 8, 13, m[o[12]], m[o[13]]);
        MIXED(3, 4, 9, 14, m[o[14]], m[o[15]]);
    }
    for (int i = 0; i < 8; i++) s->h[i] ^= v[i] ^ v[i + 8];
}

static void blake2b_more(blake2b_state *s, int64_t address, int64_t size) {
    const uint8_t *p = (const uint8_t *)(intptr_t)address;
    while (size > 0) {
        if (s->used == 128) s->count += 128, blake2b_block(s, 0), s->used = 0;
        size_t part = 128 - s->used < (size_t)size ? 128 - s->used : (size_t)size;
        memcpy(s->block + s->used, p, part);
        s->used += part, p += part, size -= (int64_t)part;
    }
}

/* Decimal digits and a colon at the end of 24 bytes; how many these are. */
static int64_t digits_before(uint8_t *end, uint64_t number) {
    uint8_t *at = end;
    *--at = ':';
    do *--at = (uint8_t)('0' + number % 10), number /= 10; while (number);
    return end - at;
}

static int64_t add_row(int64_t texts, int64_t name, int64_t name_size, int64_t buf, int64_t key, int64_t key_size,
                       int64_t image, int64_t size, int64_t sums, int64_t at) {
    blake2b_state s;
    uint8_t digits[24];
    memcpy(s.h, blake2b_start, sizeof s.h);
    s.h[0] ^= UINT64_C(0x01010020), s.count = 0, s.used = 0; /* 32 bytes, no key */
    int64_t some = digits_before(digits + 24, (uint64_t)name_size);
    blake2b_more(&s, (int64_t)(intptr_t)(digits + 24 - some), some);
    some = digits_before(digits + 24, (uint64_t)key_size);
    blake2b_more(&s, (int64_t)(intptr_t)(digits + 24 - some), some);
    blake2b_more(&s, texts + name, name_size);
    blake2b_more(&s, buf + key, key_size);
    blake2b_more(&s, buf + image, size);
    s.count += s.used;
    memset(s.block + s.used, 0, 128 - s.used);
    blake2b_block(&s, 1);
    uint64_t carry = 0;
    for (int i = 0; i < 4; i++) { /* the digest's bytes are a number, the first one is the highest */
        uint64_t word = SWAP8(s.h[3 - i]);
        int64_t place = sums + 8 * (at + i);
        uint64_t sum = (uint64_t)load_i8_native(place) + word, whole = sum + carry;
        carry = (sum < word) + (whole < sum);
        store_i8_native(place, (int64_t)whole);
    }
    return 0;
}

/* -- generated -------------------------------------------------------------------------------------------------- */
