/* Stage two's compiled path: what is done for every record that goes one to one to a Kafka topic,
 * in C over librdkafka's API.
 *
 *     take      events of the consumer's queue -> `batch`: one column for each thing that is asked
 *               of their messages
 *     scan      a run of one partition's origins, by the rule -> accepted positions, the new state,
 *               counters; pure, no client
 *     forward   accepted positions -> the producer of the open transaction
 *
 * Python does all else (deduplicator/compiled_queue.py calls this, with the GIL released): it opens
 * and commits transactions, keeps frontiers, takes part in the group. It is also the reference:
 * deduplicator/rule.py is the rule with its reasons, common/origin.py the origin's layout, and
 * whatever is unusual here (an origin that does not parse, a record of another topic, a timestamp
 * that needs a decision) is left to it, a run at a time, to be done or refused there.
 *
 * No header of librdkafka is needed to build this. Its functions are looked up in the library that
 * confluent-kafka has loaded; what is declared below is its stable interface (rdkafka.h), and
 * Python uses this file only with the versions of confluent-kafka that it was tested with.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdint.h>
#include <string.h>
#include <sys/types.h>

/* librdkafka: src/rdkafka.h */
typedef struct rd_kafka_message {
    int err;
    void *rkt;
    int32_t partition;
    void *payload;
    size_t len;
    void *key;
    size_t key_len;
    int64_t offset;
    void *private;
} message;

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
enum { MSG_F_COPY = 2 };
enum { EVENT_FETCH = 0x2, EVENT_ERROR = 0x8 };
enum { FATAL = -150 }; /* RD_KAFKA_RESP_ERR__FATAL */

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
    void *(*queue_poll)(void *queue, int timeout_ms);
    int (*event_type)(const void *event);
    const message *(*event_message_next)(void *event);
    int (*event_error)(void *event);
    const char *(*event_error_string)(void *event);
    void (*event_destroy)(void *event);
    int (*message_headers)(const message *, void **headers);
    size_t (*header_cnt)(const void *headers);
    int (*header_get_all)(const void *headers, size_t index, const char **name, const void **value,
                          size_t *size);
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

/* Look the functions up in a library that is loaded already. Returns the name of the first one that
 * is not there, or NULL. */
const char *reo_bind(const char *library) {
    static const struct {
        const char *name;
        void **at;
    } wanted[] = {
        {"rd_kafka_queue_poll", (void **)&rd_kafka.queue_poll},
        {"rd_kafka_event_type", (void **)&rd_kafka.event_type},
        {"rd_kafka_event_message_next", (void **)&rd_kafka.event_message_next},
        {"rd_kafka_event_error", (void **)&rd_kafka.event_error},
        {"rd_kafka_event_error_string", (void **)&rd_kafka.event_error_string},
        {"rd_kafka_event_destroy", (void **)&rd_kafka.event_destroy},
        {"rd_kafka_message_headers", (void **)&rd_kafka.message_headers},
        {"rd_kafka_header_cnt", (void **)&rd_kafka.header_cnt},
        {"rd_kafka_header_get_all", (void **)&rd_kafka.header_get_all},
        {"rd_kafka_headers_new", (void **)&rd_kafka.headers_new},
        {"rd_kafka_headers_destroy", (void **)&rd_kafka.headers_destroy},
        {"rd_kafka_header_add", (void **)&rd_kafka.header_add},
        {"rd_kafka_topic_new", (void **)&rd_kafka.topic_new},
        {"rd_kafka_topic_destroy", (void **)&rd_kafka.topic_destroy},
        {"rd_kafka_produceva", (void **)&rd_kafka.produceva},
        {"rd_kafka_error_code", (void **)&rd_kafka.error_code},
        {"rd_kafka_error_destroy", (void **)&rd_kafka.error_destroy},
        {"rd_kafka_error_is_fatal", (void **)&rd_kafka.error_is_fatal},
    };
    void *loaded = dlopen(library, RTLD_LAZY | RTLD_NOLOAD);
    if (!loaded) return library;
    for (size_t i = 0; i < sizeof wanted / sizeof *wanted; i++) {
        *wanted[i].at = dlsym(loaded, wanted[i].name);
        if (!*wanted[i].at) return wanted[i].name;
    }
    return NULL;
}

/* A batch of messages, and what is asked of each. Python reads and owns it; `reo_free` gives the
 * messages back. */
#define BATCH_MAX 1000
#define TEXT_MAX 512
typedef struct {
    int64_t count;
    int64_t error; /* librdkafka's code of an error that ended the batch, or 0 */
    char error_text[TEXT_MAX];
    int64_t runs; /* how often the partition changes, and one more */
    /* where each run of one partition's messages begins; behind them, `count` */
    int32_t run_begins[BATCH_MAX + 1];
    void *events[BATCH_MAX]; /* each has one message */
    const message *messages[BATCH_MAX];
    void *topics[BATCH_MAX];
    int64_t offsets[BATCH_MAX];
    int64_t source_offsets[BATCH_MAX]; /* filled by scan */
    int64_t timestamps_ms[BATCH_MAX];  /* filled by scan */
    const uint8_t *origins[BATCH_MAX]; /* NULL: the last header is no origin, or has no value */
    int64_t origin_sizes[BATCH_MAX];
    int32_t partitions[BATCH_MAX];
    /* whether the record's own headers can be copied as they are: their names are ASCII */
    int32_t plain[BATCH_MAX];
} batch;

static const char HEADER[] = "__origin";

static int is_ascii(const char *text) {
    for (; *text; text++)
        if (*text & 0x80) return 0;
    return 1;
}

static void describe(batch *found, int64_t i) {
    const message *m = found->messages[i];
    void *headers = NULL;
    const char *name;
    const void *value;
    size_t size, count;
    found->topics[i] = m->rkt;
    found->offsets[i] = m->offset;
    found->partitions[i] = m->partition;
    found->origins[i] = NULL;
    found->origin_sizes[i] = 0;
    found->plain[i] = 1;
    if (rd_kafka.message_headers(m, &headers) || !(count = rd_kafka.header_cnt(headers))) return;
    if (!rd_kafka.header_get_all(headers, count - 1, &name, &value, &size) && value
        && !strcmp(name, HEADER)) {
        found->origins[i] = value;
        found->origin_sizes[i] = (int64_t)size;
    }
    for (size_t own = 0; own + 1 < count && found->plain[i]; own++)
        found->plain[i] =
            !rd_kafka.header_get_all(headers, own, &name, &value, &size) && is_ascii(name);
}

/* Wait for a message, and take what is there behind it, up to `most` or up to an error. Returns how
 * many. The queue gives events, and calls nobody back: where messages are asked for, librdkafka
 * tells an error of a partition (its topic is gone) to the client's error callback, and
 * confluent-kafka's aborts the process when none of its own methods is called. */
int64_t reo_take(void *queue, int timeout_ms, int64_t most, batch *found) {
    void *event;
    int64_t i = 0;
    if (most > BATCH_MAX) most = BATCH_MAX;
    found->error = found->runs = 0;
    while (i < most && !found->error && (event = rd_kafka.queue_poll(queue, i ? 0 : timeout_ms))) {
        int type = rd_kafka.event_type(event);
        found->messages[i] = type == EVENT_FETCH ? rd_kafka.event_message_next(event) : NULL;
        if (!found->messages[i]) {
            if (type == EVENT_ERROR) {
                const char *text = rd_kafka.event_error_string(event);
                found->error = rd_kafka.event_error(event);
                strncpy(found->error_text, text ? text : "", TEXT_MAX - 1);
                found->error_text[TEXT_MAX - 1] = 0;
            }
            rd_kafka.event_destroy(event);
            continue;
        }
        found->events[i] = event;
        describe(found, i);
        if (i == 0 || found->partitions[i] != found->partitions[i - 1]
            || found->topics[i] != found->topics[i - 1])
            found->run_begins[found->runs++] = (int32_t)i;
        i++;
    }
    found->run_begins[found->runs] = (int32_t)i;
    return found->count = i;
}

void reo_free(batch *taken) {
    for (int64_t i = 0; i < taken->count; i++) rd_kafka.event_destroy(taken->events[i]);
    taken->count = 0;
}

/* Header `index` of a message. Returns 0 when it is there; a null value has no pointer. */
int reo_header(const message *m, int64_t index, const char **name, const void **value,
               size_t *size) {
    void *headers = NULL;
    if (rd_kafka.message_headers(m, &headers)) return -1;
    return rd_kafka.header_get_all(headers, (size_t)index, name, value, size);
}

/* The rule's state of one intermediate partition (common/frontier.py, RuleState): -1 stands for no
 * link; a hole that is not open is above every offset. */
typedef struct {
    int64_t frontier, epoch, link_offset, link_attempt, link_sequence, hole_first, hole_last;
    int64_t duplicates, stale, holes; /* counted by scan */
} rule;

static int64_t big_endian(const uint8_t *at, int bytes) {
    uint64_t found = 0;
    for (int i = 0; i < bytes; i++) found = found << 8 | at[i];
    return (int64_t)found;
}

/* Decide the records from `begin` to `end`, all of one partition. `accepted` gets their positions
 * in the batch. Returns how many, or -1 when one of them is unusual: then nothing that was written
 * to `state` and `accepted` counts. */
int64_t reo_scan(batch *taken, int64_t begin, int64_t end, const uint8_t *identity, rule *state,
                 int32_t *accepted) {
    rule s = *state;
    /* 2^63 when none is open: compared without sign */
    uint64_t hole_first = (uint64_t)s.hole_first;
    int64_t count = 0;
    if (begin < 0 || end > taken->count || begin >= end) return -1;
    for (int64_t i = begin; i < end; i++) {
        const uint8_t *at = taken->origins[i];
        if (!at || taken->origin_sizes[i] != 54 || at[0] != 1 || !taken->plain[i]) return -1;
        int64_t epoch = big_endian(at + 9, 8), offset = big_endian(at + 22, 8);
        int64_t timestamp_ms = big_endian(at + 30, 8);
        int64_t attempt = big_endian(at + 38, 8), sequence = big_endian(at + 46, 8);
        int32_t partition = (int32_t)big_endian(at + 17, 4);
        int8_t kind = (int8_t)at[21];
        if (epoch < 0 || offset < 0 || attempt < 0 || sequence < 0 || kind < -1 || kind > 1
            || partition != taken->partitions[i])
            return -1;
        /* librdkafka takes 0 for "now", and -1 is no timestamp: Python decides */
        if (timestamp_ms <= 0) return -1;
        taken->source_offsets[i] = offset;
        taken->timestamps_ms[i] = timestamp_ms;
        if (epoch != s.epoch) {
            if (epoch < s.epoch) {
                s.stale++;
                continue;
            }
            s.epoch = epoch;
            s.link_offset = s.link_attempt = s.link_sequence = -1;
            hole_first = (uint64_t)1 << 63;
            s.hole_last = -1;
        }
        if (offset <= s.frontier) {
            s.duplicates++;
            if (offset >= s.link_offset) {
                s.link_offset = offset;
                s.link_attempt = attempt;
                s.link_sequence = sequence;
            }
        } else if ((sequence == 0 && (uint64_t)offset < hole_first)
                   || (sequence > 0 && sequence - 1 == s.link_sequence && attempt == s.link_attempt
                       && offset > s.link_offset)) {
            if (memcmp(at + 1, identity, 8)) return -1;
            accepted[count++] = (int32_t)i;
            s.frontier = s.link_offset = offset;
            s.link_attempt = attempt;
            s.link_sequence = sequence;
            if ((uint64_t)offset >= hole_first) {
                if (offset < s.hole_last) {
                    hole_first = (uint64_t)offset + 1;
                } else {
                    hole_first = (uint64_t)1 << 63;
                    s.hole_last = -1;
                }
            }
        } else {
            s.holes++;
            if ((uint64_t)offset < hole_first) hole_first = (uint64_t)offset;
            if (offset > s.hole_last) s.hole_last = offset;
        }
    }
    s.hole_first = (int64_t)hole_first;
    *state = s;
    return count;
}

/* The record's own headers: all but the last one, the origin. NULL when there are none. */
static void *own_headers(const message *m) {
    void *headers = NULL, *own;
    const char *name;
    const void *value;
    size_t size, count;
    if (rd_kafka.message_headers(m, &headers) || (count = rd_kafka.header_cnt(headers)) < 2)
        return NULL;
    own = rd_kafka.headers_new(count - 1);
    for (size_t i = 0; i + 1 < count; i++)
        if (!rd_kafka.header_get_all(headers, i, &name, &value, &size))
            rd_kafka.header_add(own, name, -1, value, (ssize_t)size);
    return own;
}

/* Hand records to a producer, each with its own key, value, headers and timestamp. Returns how many
 * it took: fewer than `count` when it refused the next one, with librdkafka's code in `error`. */
int64_t reo_forward(void *producer, const char *topic, int32_t partition, const batch *taken,
                    const int32_t *positions, int64_t count, int32_t *error) {
    void *rkt = rd_kafka.topic_new(producer, topic, NULL);
    int64_t done = 0;
    *error = 0;
    if (!rkt) {
        *error = -1;
        return 0;
    }
    for (; done < count; done++) {
        const message *m = taken->messages[positions[done]];
        void *headers = own_headers(m), *failed;
        argument arguments[7] = {
            {VTYPE_RKT, {.rkt = rkt}},
            {VTYPE_PARTITION, {.i32 = partition}},
            {VTYPE_VALUE, {.mem = {m->payload, m->len}}},
            {VTYPE_KEY, {.mem = {m->key, m->key_len}}},
            {VTYPE_TIMESTAMP, {.i64 = taken->timestamps_ms[positions[done]]}},
            {VTYPE_MSGFLAGS, {.i = MSG_F_COPY}},
            {VTYPE_HEADERS, {.headers = headers}},
        };
        failed = rd_kafka.produceva(producer, arguments, headers ? 7 : 6);
        if (failed) { /* the headers are still ours */
            /* as rd_kafka_producev */
            *error = rd_kafka.error_is_fatal(failed) ? FATAL : rd_kafka.error_code(failed);
            rd_kafka.error_destroy(failed);
            if (headers) rd_kafka.headers_destroy(headers);
            break;
        }
    }
    rd_kafka.topic_destroy(rkt);
    return done;
}

int64_t reo_batch_size(void) { return sizeof(batch); }
