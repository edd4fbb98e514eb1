/* Records at a steady rate to one partition, and a consumer that waits for them.
 *
 *   pace PORT RATE SECONDS START FETCH_OFFSET_AT TOPIC_BYTES < frames
 *
 * The frames on stdin are two whole requests: a Produce (v7) of one record, sent again for each record, and a Fetch
 * (v11) of the same partition, one in flight all the time, whose offset is at byte FETCH_OFFSET_AT. START is the
 * partition's end offset before the first record, TOPIC_BYTES the length of the topic's name.
 *
 * Record n is due at the start plus n periods, independent of earlier records, and its times are measured from then. A
 * server that pauses therefore delays all records that are due meanwhile, and not only the one that it is serving. Ends
 * after SECONDS or on SIGTERM, when all records that were due are acknowledged and consumed. Prints one JSON object. One
 * thread in C, because on a machine of two cores a client in Python would measure itself.
 */
#include <arpa/inet.h>
#include <endian.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/timerfd.h>
#include <time.h>
#include <unistd.h>

enum { MAX_INPUT = 64 * 1024, READ_BYTES = 4 * 1024 * 1024, MAX_EVENTS = 8, HEAD_BYTES = 8, BATCH_HEAD = 12 };
static const int64_t SECOND_NS = 1000000000, PATIENCE_NS = 60 * 1000000000LL; /* for records due at the end */

typedef struct {
    int fd;
    char *frame;
    size_t frame_bytes, frame_done; /* of the frame in progress */
    uint32_t sent, answered;
    char *in;
    size_t in_used;
} connection;

static connection producer, consumer;
static int poller, timer, wants_write;
static volatile sig_atomic_t told_to_end;
static int64_t began, period, start, next_offset;
static uint32_t due, total, consumed, topic_bytes;
static size_t offset_at;
static int64_t *late, *acknowledged, *arrived; /* by record, in nanoseconds since it was due */

static void fail(const char *what) {
    fprintf(stderr, "pace: %s%s%s\n", what, errno ? ": " : "", errno ? strerror(errno) : "");
    exit(1);
}

static void refuse(const char *what) {
    errno = 0;
    fail(what);
}

static void end(int signal) {
    (void)signal;
    told_to_end = 1;
}

static int64_t now_ns(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (int64_t)t.tv_sec * SECOND_NS + t.tv_nsec;
}

static int64_t since_due(uint32_t record, int64_t now) { return now - (began + (int64_t)record * period); }

static uint64_t number(const char *at, size_t bytes) {
    uint64_t value = 0;
    while (bytes--) value = value << 8 | (unsigned char)*at++;
    return value;
}

static void watch(connection *c, int operation, uint32_t events) {
    struct epoll_event event = {.events = events, .data.ptr = c};
    if (epoll_ctl(poller, operation, c->fd, &event)) fail("epoll_ctl");
}

/* Whether the whole frame is sent. */
static int write_frame(connection *c) {
    uint32_t id = htonl(c->sent);
    memcpy(c->frame + 8, &id, 4);
    while (c->frame_done < c->frame_bytes) {
        ssize_t n = write(c->fd, c->frame + c->frame_done, c->frame_bytes - c->frame_done);
        if (n < 0 && errno == EINTR) continue;
        if (n < 0 && errno == EAGAIN) return 0;
        if (n < 0) fail("write");
        c->frame_done += (size_t)n;
    }
    c->frame_done = 0;
    c->sent++;
    return 1;
}

static void produce_due(void) {
    int64_t now = now_ns();
    if (told_to_end && due < total) total = due;
    while (due < total && since_due(due, now) >= 0) due++;
    while (producer.sent < due) {
        uint32_t record = producer.sent;
        int whole = write_frame(&producer);
        if (whole) late[record] = since_due(record, now_ns());
        if (whole == wants_write) watch(&producer, EPOLL_CTL_MOD, EPOLLIN | (whole ? 0 : (uint32_t)EPOLLOUT));
        wants_write = !whole;
        if (!whole) return;
    }
}

static void fetch_next(void) {
    uint64_t offset = htobe64((uint64_t)next_offset);
    memcpy(consumer.frame + offset_at, &offset, sizeof offset);
    if (!write_frame(&consumer)) refuse("a fetch request does not fit into an empty socket");
}

/* Produce v7: topics {name, partitions {index, error, base offset, append time, log start}}, throttle. */
static void take_acknowledgement(const char *body, size_t bytes, int64_t now) {
    size_t error_at = 4 + 2 + topic_bytes + 4 + 4;
    if (bytes < error_at + 10) refuse("a produce reply that is too short");
    if (number(body + error_at, 2)) refuse("a record was refused");
    if ((int64_t)number(body + error_at + 2, 8) != start + producer.answered) refuse("a record at another offset");
    acknowledged[producer.answered] = since_due(producer.answered, now);
    producer.answered++;
}

/* Fetch v11: throttle, error, session, topics {name, partitions {index, error, three offsets, aborted, replica}}. */
static void take_records(const char *body, size_t bytes, int64_t now) {
    size_t error_at = 4 + 2 + 4 + 4 + 2 + topic_bytes + 4 + 4, at = error_at + 2 + 3 * 8 + 4 + 4 + 4;
    if (bytes < at || number(body + 4, 2) || number(body + error_at, 2)) refuse("a fetch was refused");
    while (at + BATCH_HEAD <= bytes) {
        int64_t offset = (int64_t)number(body + at, 8);
        at += BATCH_HEAD + number(body + at + 8, 4);
        if (at > bytes) break; /* truncated by the limit of the fetch; it is fetched again */
        if (offset < next_offset) continue;
        if (offset != next_offset || offset - start >= (int64_t)due) refuse("a record that is not due");
        arrived[consumed] = since_due(consumed, now);
        consumed++;
        next_offset++;
    }
    consumer.answered++;
    fetch_next();
}

static void read_in(connection *c) {
    ssize_t n = read(c->fd, c->in + c->in_used, READ_BYTES - c->in_used);
    if (n == 0) refuse("the server closed a connection");
    if (n < 0 && (errno == EAGAIN || errno == EINTR)) return;
    if (n < 0) fail("read");
    c->in_used += (size_t)n;
    int64_t now = now_ns();
    size_t at = 0;
    while (c->in_used - at >= HEAD_BYTES) {
        size_t bytes = (size_t)number(c->in + at, 4);
        if (bytes < 4 || bytes + 4 > READ_BYTES) refuse("a reply of impossible size");
        if (c->in_used - at < bytes + 4) break;
        if (number(c->in + at + 4, 4) != c->answered) refuse("a reply with another correlation id than the one due");
        if (c == &producer) take_acknowledgement(c->in + at + HEAD_BYTES, bytes - 4, now);
        else take_records(c->in + at + HEAD_BYTES, bytes - 4, now);
        at += bytes + 4;
    }
    memmove(c->in, c->in + at, c->in_used - at);
    c->in_used -= at;
}

static void open_connection(connection *c, int port, char *frame) {
    struct sockaddr_in to = {.sin_family = AF_INET, .sin_port = htons((uint16_t)port)};
    to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    int one = 1;
    c->frame = frame;
    c->frame_bytes = 4 + (size_t)number(frame, 4);
    c->in = malloc(READ_BYTES);
    c->fd = socket(AF_INET, SOCK_STREAM, 0);
    if (c->fd < 0 || !c->in) fail("socket");
    if (connect(c->fd, (struct sockaddr *)&to, sizeof to)) fail("connect");
    setsockopt(c->fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
    fcntl(c->fd, F_SETFL, O_NONBLOCK);
    watch(c, EPOLL_CTL_ADD, EPOLLIN);
}

static void start_timer(void) {
    timer = timerfd_create(CLOCK_MONOTONIC, TFD_NONBLOCK);
    struct itimerspec rhythm = {.it_interval = {period / SECOND_NS, period % SECOND_NS}};
    rhythm.it_value = (struct timespec){began / SECOND_NS, began % SECOND_NS};
    if (timer < 0 || timerfd_settime(timer, TFD_TIMER_ABSTIME, &rhythm, NULL)) fail("timer");
    struct epoll_event event = {.events = EPOLLIN, .data.ptr = NULL};
    if (epoll_ctl(poller, EPOLL_CTL_ADD, timer, &event)) fail("epoll_ctl");
}

static void run(void) {
    struct epoll_event events[MAX_EVENTS];
    uint64_t ticks;
    fetch_next();
    while (consumed < total || producer.answered < total) {
        int count = epoll_wait(poller, events, MAX_EVENTS, 1000);
        if (count < 0 && errno != EINTR) fail("epoll_wait");
        produce_due();
        for (int i = 0; i < count; i++) {
            connection *c = events[i].data.ptr;
            if (c && events[i].events & ~(uint32_t)EPOLLOUT) read_in(c);
            if (!c && read(timer, &ticks, sizeof ticks) < 0 && errno != EAGAIN) fail("timer");
        }
        if (since_due(total, now_ns()) > PATIENCE_NS) refuse("records were due and did not come");
    }
}

static int ascending(const void *a, const void *b) {
    int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
    return (x > y) - (x < y);
}

static void print_percentiles(const char *name, int64_t *durations) {
    const struct { const char *name; double quantile; } shown[] = {{"p50", 0.5}, {"p99", 0.99}, {"p999", 0.999}};
    qsort(durations, total, sizeof *durations, ascending);
    for (size_t i = 0; i < sizeof shown / sizeof *shown; i++)
        printf("\"%s_%s_ms\": %.4f, ", name, shown[i].name,
               (double)durations[(size_t)(shown[i].quantile * (total - 1))] / 1e6);
    printf("\"%s_max_ms\": %.4f, ", name, (double)durations[total - 1] / 1e6);
}

int main(int argc, char **argv) {
    static char input[MAX_INPUT];
    if (argc != 7) refuse("usage: pace PORT RATE SECONDS START FETCH_OFFSET_AT TOPIC_BYTES < frames");
    double rate = atof(argv[2]), seconds = atof(argv[3]);
    start = next_offset = atoll(argv[4]);
    offset_at = (size_t)atol(argv[5]);
    topic_bytes = (uint32_t)atol(argv[6]);
    total = (uint32_t)(rate * seconds);
    period = (int64_t)(1e9 / rate);
    size_t input_bytes = fread(input, 1, MAX_INPUT, stdin);
    size_t second_at = 4 + (size_t)number(input, 4);
    if (second_at + 12 > input_bytes || second_at + 4 + number(input + second_at, 4) != input_bytes || total < 1)
        refuse("two whole frames are expected on stdin, and a record at least");
    late = calloc(total, sizeof *late);
    acknowledged = calloc(total, sizeof *acknowledged);
    arrived = calloc(total, sizeof *arrived);
    if (!late || !acknowledged || !arrived) fail("memory");
    signal(SIGTERM, end);
    poller = epoll_create1(0);
    open_connection(&producer, atoi(argv[1]), input);
    open_connection(&consumer, atoi(argv[1]), input + second_at);

    began = now_ns() + SECOND_NS / 100; /* when the consumer is already waiting */
    start_timer();
    run();
    double took = (double)(now_ns() - began) / 1e9;
    if (total < 1) refuse("ended before the first record was due");
    struct rusage used;
    getrusage(RUSAGE_SELF, &used);
    double cpu = (double)(used.ru_utime.tv_sec + used.ru_stime.tv_sec) +
                 (double)(used.ru_utime.tv_usec + used.ru_stime.tv_usec) / 1e6;
    printf("{");
    print_percentiles("late", late);
    print_percentiles("ack", acknowledged);
    print_percentiles("trip", arrived);
    printf("\"records\": %u, \"seconds\": %.6f, \"cpu_seconds\": %.4f}\n", total, took, cpu);
    return 0;
}
