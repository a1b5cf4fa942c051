/* Stage two's compiled path: hands the records of an envelope to the producer of the open
 * transaction, without a Python object for each.
 *
 * The rule is not here: Python decides about an envelope (deduplicator/rule.py), keeps frontiers,
 * opens and commits transactions. deduplicator/compiled_path.py calls this, with the GIL released.
 * The layout of an envelope is described in common/envelope.py, which reads and writes it, too. That
 * reader and this one share no code, accept the same envelopes and find the same records in them:
 * the fuzzer compares them.
 *
 * Anybody who may write to the intermediate topic can write any bytes there. So an envelope is
 * checked whole before its first record is handed over, and nothing is read behind its last byte.
 *
 * No header of librdkafka is needed to build this. Python looks its functions up in the library that
 * confluent-kafka has loaded; what is declared below is its stable interface (rdkafka.h), and
 * Python uses this file only with the versions of confluent-kafka that it was tested with.
 */
#include <stdint.h>
#include <string.h>
#include <sys/types.h>

/* librdkafka: src/rdkafka.h */
enum {
    VTYPE_END,
    VTYPE_TOPIC,
    VTYPE_RKT,
    VTYPE_PARTITION,
    VTYPE_VALUE,
    VTYPE_KEY,
    VTYPE_OPAQUE,
    VTYPE_MSGFLAGS,
    VTYPE_TIMESTAMP,
    VTYPE_HEADER,
    VTYPE_HEADERS
};
enum { UNKNOWN = -1, FATAL = -150 }; /* RD_KAFKA_RESP_ERR_UNKNOWN, RD_KAFKA_RESP_ERR__FATAL */

/* What reo_forward says beside librdkafka's codes, which are above -201 */
enum { INVALID = -1001, ZERO_TIMESTAMP = -1002 };

typedef struct {
    int vtype;
    union {
        void *rkt;
        int i;
        int32_t i32;
        int64_t i64;
        struct {
            const void *ptr;
            size_t size;
        } mem;
        void *headers;
        char padding[64];
    } u;
} argument;

static struct {
    void *(*headers_new)(size_t count);
    void (*headers_destroy)(void *headers);
    int (*header_add)(void *headers, const char *name, ssize_t name_size, const void *value,
                      ssize_t value_size);
    void *(*topic_new)(void *client, const char *name, void *configuration);
    void (*topic_destroy)(void *topic);
    void *(*produceva)(void *client, const argument *arguments, size_t count);
    int (*error_code)(const void *error);
    int (*error_is_fatal)(const void *error);
    void (*error_destroy)(void *error);
} rd_kafka;

static const struct {
    const char *name;
    void **at;
} needed[] = {
    {"rd_kafka_headers_new", (void **)&rd_kafka.headers_new},
    {"rd_kafka_headers_destroy", (void **)&rd_kafka.headers_destroy},
    {"rd_kafka_header_add", (void **)&rd_kafka.header_add},
    {"rd_kafka_topic_new", (void **)&rd_kafka.topic_new},
    {"rd_kafka_topic_destroy", (void **)&rd_kafka.topic_destroy},
    {"rd_kafka_produceva", (void **)&rd_kafka.produceva},
    {"rd_kafka_error_code", (void **)&rd_kafka.error_code},
    {"rd_kafka_error_is_fatal", (void **)&rd_kafka.error_is_fatal},
    {"rd_kafka_error_destroy", (void **)&rd_kafka.error_destroy},
};

/* The name of a function of librdkafka that this file calls, or NULL after the last one. With dlsym
 * of its own this library would need a C library as new as that of the machine that built it, and no
 * package index would take it (manylinux). */
const char *reo_needed(int64_t number) {
    return number < (int64_t)(sizeof needed / sizeof *needed) ? needed[number].name : NULL;
}

/* Where that function is. */
void reo_bind(int64_t number, void *function) { *needed[number].at = function; }

enum { VERSION = 2, HEAD_SIZE = 54 };

/* The version of the envelopes that this file reads. */
int64_t reo_envelope_version(void) { return VERSION; }

typedef struct {
    const uint8_t *at; /* NULL: null, which is not empty */
    int64_t size;
} content;

typedef struct {
    int64_t source_offset, timestamp_ms;
    content key, value;
    int64_t header_count;
    const uint8_t *headers, *end;
} source_record;

typedef struct {
    int64_t after, through, base_timestamp_ms;
} envelope_head;

static int64_t read_integer(const uint8_t *at, int bytes) {
    uint64_t number = 0;
    for (int i = 0; i < bytes; i++) number = number << 8 | at[i];
    return (int64_t)number;
}

/* What follows returns the position after what was read, or NULL when the bytes are not that. */

static const uint8_t *read_varint(const uint8_t *at, const uint8_t *end, int64_t *number) {
    uint64_t bits = 0;
    for (int shift = 0; at < end && shift < 64; shift += 7) {
        uint8_t byte = *at++;
        bits |= (uint64_t)(byte & 0x7f) << shift;
        if (byte < 0x80) {
            *number = (int64_t)(bits >> 1 ^ -(bits & 1));
            /* of a tenth byte, one bit is left for the 64 */
            return shift == 63 && byte > 1 ? NULL : at;
        }
    }
    return NULL;
}

static const uint8_t *read_content(const uint8_t *at, const uint8_t *end, content *found) {
    int64_t size;
    *found = (content){NULL, 0};
    if (!(at = read_varint(at, end, &size)) || size == -1) return at;
    if (size < 0 || size > end - at) return NULL;
    *found = (content){at, size};
    return at + size;
}

/* The continuation bytes of a UTF-8 character; its second byte is at least `least`, at most `most`:
 * that excludes longer forms than needed, surrogates, and what is above U+10FFFF. */
static const uint8_t *read_continuation(const uint8_t *at, const uint8_t *end, int count,
                                        uint8_t least, uint8_t most) {
    if (end - at < count || *at < least || *at > most) return NULL;
    for (int i = 1; i < count; i++)
        if ((at[i] & 0xc0) != 0x80) return NULL;
    return at + count;
}

/* Whether a header has a name that every client can carry: it is UTF-8, and has no NUL. */
static int is_name(const content *name) {
    const uint8_t *at = name->at, *end;
    if (!at) return 0;
    end = at + name->size;
    while (at && at < end) {
        uint8_t byte = *at++;
        if (byte < 0x80) {
            if (!byte) return 0;
        } else if (byte >= 0xc2 && byte <= 0xdf) {
            at = read_continuation(at, end, 1, 0x80, 0xbf);
        } else if (byte >= 0xe0 && byte <= 0xef) {
            at = read_continuation(at, end, 2, byte == 0xe0 ? 0xa0 : 0x80,
                                   byte == 0xed ? 0x9f : 0xbf);
        } else if (byte >= 0xf0 && byte <= 0xf4) {
            at = read_continuation(at, end, 3, byte == 0xf0 ? 0x90 : 0x80,
                                   byte == 0xf4 ? 0x8f : 0xbf);
        } else {
            return 0;
        }
    }
    return at == end;
}

static const uint8_t *read_record(const uint8_t *at, const uint8_t *end, const envelope_head *head,
                                  source_record *record) {
    int64_t size, timestamp, offset;
    if (!(at = read_varint(at, end, &size)) || size < 1 || size > end - at) return NULL;
    record->end = at + size;
    end = record->end;
    if (*at++ > 2) return NULL; /* the kind of the timestamp */
    if (!(at = read_varint(at, end, &timestamp)) || !(at = read_varint(at, end, &offset))
        || !(at = read_content(at, end, &record->key))
        || !(at = read_content(at, end, &record->value))
        || !(at = read_varint(at, end, &record->header_count)))
        return NULL;
    if (__builtin_add_overflow(head->base_timestamp_ms, timestamp, &record->timestamp_ms)
        || __builtin_add_overflow(head->after, offset, &record->source_offset))
        return NULL;
    /* each header takes two bytes or more: a wrong number ends here, not in a loop without an end */
    if (record->header_count < 0 || record->header_count > (end - at) / 2) return NULL;
    record->headers = at;
    for (int64_t i = 0; i < record->header_count; i++) {
        content name, value;
        if (!(at = read_content(at, end, &name)) || !is_name(&name)
            || !(at = read_content(at, end, &value)))
            return NULL;
    }
    return at == end ? end : NULL;
}

/* Checks everything that an envelope says; its head for reo_forward. Returns the number of its
 * records, or -1 when it is not an envelope. */
static int64_t read_envelope(const uint8_t *envelope, int64_t size, envelope_head *head) {
    const uint8_t *at, *end = envelope + size;
    int64_t epoch, partition, count, last, found = 0, last_position = 0, last_offset;
    if (size < HEAD_SIZE || envelope[0] != VERSION || envelope[1] > 1) return -1;
    epoch = read_integer(envelope + 10, 8);
    partition = (int32_t)read_integer(envelope + 18, 4);
    head->after = read_integer(envelope + 22, 8);
    head->through = read_integer(envelope + 30, 8);
    head->base_timestamp_ms = read_integer(envelope + 38, 8);
    count = (int32_t)read_integer(envelope + 46, 4);
    last = (int32_t)read_integer(envelope + 50, 4);
    /* the offset after the last one must be one, too */
    if (epoch < 0 || partition < 0 || head->after < -1 || head->through < head->after
        || head->through == INT64_MAX)
        return -1;
    last_offset = head->after;
    for (at = envelope + HEAD_SIZE; at < end; found++) {
        source_record record;
        last_position = at - envelope;
        if (!(at = read_record(at, end, head, &record))) return -1;
        if (record.source_offset <= last_offset || record.source_offset > head->through) return -1;
        if (found == 0 && record.timestamp_ms != head->base_timestamp_ms) return -1;
        last_offset = record.source_offset;
    }
    if (found == 0 && head->base_timestamp_ms != 0) return -1;
    return found == count && last_position == last ? found : -1;
}

/* How many records an envelope has; -1 when it is not an envelope. */
int64_t reo_check(const uint8_t *envelope, int64_t size) {
    envelope_head head;
    return read_envelope(envelope, size, &head);
}

/* The headers of a record that was checked; NULL when it has none. */
static void *create_headers(const source_record *record) {
    const uint8_t *at = record->headers;
    void *headers;
    if (!record->header_count) return NULL;
    headers = rd_kafka.headers_new((size_t)record->header_count);
    for (int64_t i = 0; i < record->header_count; i++) {
        content name, value;
        at = read_content(at, record->end, &name);
        at = read_content(at, record->end, &value);
        rd_kafka.header_add(headers, (const char *)name.at, (ssize_t)name.size, value.at,
                            (ssize_t)value.size);
    }
    return headers;
}

/* Hand one record to a producer. Returns 0 or librdkafka's code. The value is not copied
 * (RD_KAFKA_MSG_F_COPY is not set): it has to stay where it is until the record is delivered or
 * purged. */
static int32_t produce(void *producer, void *rkt, int32_t partition, const source_record *record,
                       int64_t timestamp_ms) {
    void *headers = create_headers(record), *failed;
    argument arguments[6] = {
        {VTYPE_RKT, {.rkt = rkt}},
        {VTYPE_PARTITION, {.i32 = partition}},
        {VTYPE_VALUE, {.mem = {record->value.at, (size_t)record->value.size}}},
        {VTYPE_KEY, {.mem = {record->key.at, (size_t)record->key.size}}},
        {VTYPE_TIMESTAMP, {.i64 = timestamp_ms}},
        {VTYPE_HEADERS, {.headers = headers}},
    };
    int32_t error;
    failed = rd_kafka.produceva(producer, arguments, headers ? 6 : 5);
    if (!failed) return 0;
    /* as rd_kafka_producev */
    error = rd_kafka.error_is_fatal(failed) ? FATAL : rd_kafka.error_code(failed);
    rd_kafka.error_destroy(failed);
    if (headers) rd_kafka.headers_destroy(headers); /* they are still ours */
    return error;
}

/* Hand the records of an envelope whose source offsets are above `above` and below `below` to a
 * producer, in order, each with its own key, value, headers and timestamp. Returns how many the
 * producer has accepted, and in `position` the source offset of the last one of them (`above` when
 * there is none): whoever goes on later goes on above it. `error` is 0 when that are all; otherwise
 *
 *     INVALID          it is not an envelope; no record was handed over
 *     ZERO_TIMESTAMP   the record at source offset `position` has timestamp 0, which librdkafka takes
 *                      for "now", and `zero_timestamp_ms`, its replacement, is 0
 *     librdkafka's     the producer refused the next record (its queue is full, a fatal error) */
int64_t reo_forward(void *producer, const char *topic, int32_t partition, const uint8_t *envelope,
                    int64_t size, int64_t above, int64_t below, int64_t zero_timestamp_ms,
                    int32_t *error, int64_t *position) {
    envelope_head head;
    const uint8_t *at, *end = envelope + size;
    void *rkt;
    int64_t count = 0;
    *error = INVALID;
    *position = above;
    if (read_envelope(envelope, size, &head) < 0) return 0;
    *error = UNKNOWN;
    if (!(rkt = rd_kafka.topic_new(producer, topic, NULL))) return 0;
    *error = 0;
    at = envelope + HEAD_SIZE;
    while (at < end) {
        source_record record;
        int64_t timestamp_ms;
        at = read_record(at, end, &head, &record);
        if (record.source_offset >= below) break;
        if (record.source_offset <= above) continue;
        timestamp_ms = record.timestamp_ms ? record.timestamp_ms : zero_timestamp_ms;
        if (!timestamp_ms) {
            *error = ZERO_TIMESTAMP;
            *position = record.source_offset;
            break;
        }
        if ((*error = produce(producer, rkt, partition, &record, timestamp_ms))) break;
        *position = record.source_offset;
        count++;
    }
    rd_kafka.topic_destroy(rkt);
    return count;
}
