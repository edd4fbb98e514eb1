/* A load of small requests: many connections, each with a fixed number of requests in flight.
 *
 *   load PORT SERVER_PID CONNECTIONS IN_FLIGHT SECONDS MAX_REQUESTS ORDERED EXPECTED < frames
 *
 * The frames on stdin are whole requests; each connection repeats one of them, in turn: the first connection the first,
 * and so on. The correlation id (bytes 8 to 11 of a frame) counts up per connection. With ORDERED every reply must
 * have the next id. EXPECTED, in hex, is the required content of every reply after its id; "-" if unknown.
 * Ends after SECONDS or MAX_REQUESTS, whichever comes first, once all requests in flight are answered. All
 * connections are open, and have been answered an ApiVersions, before the clock starts and the CPU time of the server
 * and of this client count. Prints one JSON object. In C, because a client in Python would measure itself.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include "server.h"

enum { MAX_INPUT = 16 * 1024 * 1024, MAX_EXPECTED = 4096, MAX_IN_FLIGHT = 4096, READ_BYTES = 256 * 1024, HEAD_BYTES = 8, MAX_EVENTS = 512 };
static const int64_t PATIENCE_NS = 10LL * 1000 * 1000 * 1000; /* for requests in flight at the end */

/* Latency in microseconds: exact below 64, then 32 steps to every doubling, so within about 3 %. */
enum { EXACT = 64, STEPS = 32, BUCKETS = EXACT + 40 * STEPS };

typedef struct {
    int fd;
    const char *frame; /* the request that it repeats */
    size_t frame_bytes;
    uint32_t next_id, due_id; /* requests sent and answered */
    int64_t *sent_at;         /* by id modulo the number in flight */
    char *out;                /* requests not written yet */
    size_t out_used, out_done;
    unsigned char head[HEAD_BYTES];
    size_t head_used, body_bytes, skip;
    int wants_write;
} connection;

static char input[MAX_INPUT], expected[MAX_EXPECTED];
static size_t input_bytes, expected_bytes;
static int in_flight, ordered, poller;
static uint64_t sent_total, max_requests, answered, odd_sizes, histogram[BUCKETS];
static int64_t deadline;
static uint32_t reply_bytes;
static char read_buffer[READ_BYTES];

static void fail(const char *what) {
    fprintf(stderr, "load: %s%s%s\n", what, errno ? ": " : "", errno ? strerror(errno) : "");
    exit(1);
}

static int64_t now_ns(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

static void count_latency(int64_t ns) {
    uint64_t us = ns > 0 ? (uint64_t)ns / 1000 : 0;
    int index = (int)us;
    if (us >= EXACT) {
        int shift = 63 - __builtin_clzll(us) - 5;
        index = EXACT + (shift - 1) * STEPS + (int)((us >> shift) - STEPS);
    }
    histogram[index < BUCKETS ? index : BUCKETS - 1]++;
}

static double percentile_us(double quantile) {
    uint64_t wanted = (uint64_t)(quantile * (double)answered), seen = 0;
    for (int index = 0; index < BUCKETS; index++) {
        seen += histogram[index];
        if (seen > wanted) {
            if (index < EXACT) return index;
            int shift = (index - EXACT) / STEPS + 1;
            return (double)((uint64_t)(STEPS + (index - EXACT) % STEPS) << shift);
        }
    }
    return 0;
}

static void add_request(connection *c, int64_t now) {
    char *at = c->out + c->out_used;
    uint32_t id = htonl(c->next_id);
    memcpy(at, c->frame, c->frame_bytes);
    memcpy(at + 8, &id, 4);
    c->sent_at[c->next_id++ % (uint32_t)in_flight] = now;
    c->out_used += c->frame_bytes;
    sent_total++;
}

static void watch(connection *c, int write_too) {
    struct epoll_event event = {.events = EPOLLIN | (write_too ? (uint32_t)EPOLLOUT : 0), .data.ptr = c};
    if (epoll_ctl(poller, EPOLL_CTL_MOD, c->fd, &event)) fail("epoll_ctl");
    c->wants_write = write_too;
}

static void write_out(connection *c) {
    while (c->out_done < c->out_used) {
        ssize_t n = write(c->fd, c->out + c->out_done, c->out_used - c->out_done);
        if (n < 0) {
            if (errno == EINTR) continue;
            if (errno != EAGAIN) fail("write");
            if (!c->wants_write) watch(c, 1);
            return;
        }
        c->out_done += (size_t)n;
    }
    c->out_used = c->out_done = 0;
    if (c->wants_write) watch(c, 0);
}

/* A complete head has arrived: length and correlation id. */
static void take_reply(connection *c, int64_t now) {
    uint32_t size, id;
    memcpy(&size, c->head, 4);
    memcpy(&id, c->head + 4, 4);
    size = ntohl(size);
    if (size < 4 || size > 100u * 1024 * 1024) errno = 0, fail("a reply of impossible size");
    if (ordered && ntohl(id) != c->due_id) errno = 0, fail("a reply with another correlation id than the one due");
    if (c->due_id == c->next_id) errno = 0, fail("a reply to nothing");
    if (reply_bytes == 0) reply_bytes = size;
    if (size != reply_bytes) odd_sizes++;
    count_latency(now - c->sent_at[c->due_id++ % (uint32_t)in_flight]);
    answered++;
    c->head_used = 0;
    c->skip = c->body_bytes = size - 4;
    if (expected_bytes && c->skip != expected_bytes) errno = 0, fail("a reply of another size than expected");
}

static void take_body(connection *c, const char *data, size_t count) {
    if (expected_bytes && memcmp(expected + c->body_bytes - c->skip, data, count))
        errno = 0, fail("a reply other than the one expected");
    c->skip -= count;
}

static int take_bytes(connection *c, const char *data, size_t count, int64_t now) {
    int replies = 0;
    while (count > 0) {
        size_t step = c->skip;
        if (step > 0) {
            if (step > count) step = count;
            take_body(c, data, step);
        } else {
            step = HEAD_BYTES - c->head_used;
            if (step > count) step = count;
            memcpy(c->head + c->head_used, data, step);
            c->head_used += step;
            if (c->head_used == HEAD_BYTES) take_reply(c, now), replies++;
        }
        data += step;
        count -= step;
    }
    return replies;
}

static void read_in(connection *c) {
    ssize_t n = read(c->fd, read_buffer, READ_BYTES);
    if (n == 0) errno = 0, fail("the server closed a connection");
    if (n < 0) {
        if (errno == EAGAIN || errno == EINTR) return;
        fail("read");
    }
    int64_t now = now_ns();
    int replies = take_bytes(c, read_buffer, (size_t)n, now);
    /* Unwritten bytes move to the front: the buffer has exactly the size of the requests in flight. */
    memmove(c->out, c->out + c->out_done, c->out_used - c->out_done);
    c->out_used -= c->out_done;
    c->out_done = 0;
    while (replies-- > 0 && now < deadline && sent_total < max_requests) add_request(c, now);
    write_out(c);
}

/* As every client does first. The response proves that the server has accepted the connection. */
static void greet(connection *c) {
    static const unsigned char api_versions_v0[] = {0, 0, 0, 10, 0, 18, 0, 0, 0, 0, 0, 0, 255, 255};
    uint32_t size;
    if (write(c->fd, api_versions_v0, sizeof api_versions_v0) != sizeof api_versions_v0) fail("write");
    if (recv(c->fd, &size, 4, MSG_WAITALL) != 4) fail("ApiVersions was not answered");
    size = ntohl(size);
    if (size > READ_BYTES) errno = 0, fail("a reply of impossible size");
    if (recv(c->fd, read_buffer, size, MSG_WAITALL) != (ssize_t)size) fail("ApiVersions was not answered");
}

static void open_connection(connection *c, int number, int port) {
    int one = 1;
    c->fd = connect_to(port, number);
    if (c->fd < 0) fail("connect");
    greet(c);
    setsockopt(c->fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
    fcntl(c->fd, F_SETFL, O_NONBLOCK);
    c->sent_at = calloc((size_t)in_flight, sizeof *c->sent_at);
    c->out = malloc(c->frame_bytes * (size_t)in_flight);
    if (!c->sent_at || !c->out) fail("memory");
    struct epoll_event event = {.events = EPOLLIN, .data.ptr = c};
    if (epoll_ctl(poller, EPOLL_CTL_ADD, c->fd, &event)) fail("epoll_ctl");
}

static void fail_unanswered(void) {
    fprintf(stderr, "load: %llu of %llu requests were left unanswered %d s after the end of the load\n",
            (unsigned long long)(sent_total - answered), (unsigned long long)sent_total, (int)(PATIENCE_NS / 1000000000));
    exit(1);
}

static double own_cpu_seconds(void) {
    struct rusage used;
    getrusage(RUSAGE_SELF, &used);
    return (double)(used.ru_utime.tv_sec + used.ru_stime.tv_sec) +
           (double)(used.ru_utime.tv_usec + used.ru_stime.tv_usec) / 1e6;
}

static void run(connection *all, int connections, int64_t began) {
    struct epoll_event events[MAX_EVENTS];
    for (int i = 0; i < connections; i++) {
        for (int k = 0; k < in_flight && sent_total < max_requests; k++) add_request(&all[i], began);
        write_out(&all[i]);
    }
    while (answered < sent_total) {
        int count = epoll_wait(poller, events, MAX_EVENTS, 1000);
        if (count < 0 && errno != EINTR) fail("epoll_wait");
        for (int i = 0; i < count; i++) {
            connection *c = events[i].data.ptr;
            if (events[i].events & EPOLLOUT) write_out(c);
            if (events[i].events & ~(uint32_t)EPOLLOUT) read_in(c);
        }
        if (now_ns() > deadline + PATIENCE_NS) fail_unanswered();
    }
}

/* Distributes the frames of the input to the connections. */
static void deal_frames(connection *all, int connections) {
    size_t at = 0;
    input_bytes = fread(input, 1, MAX_INPUT, stdin);
    if (input_bytes < 12) errno = 0, fail("no frame on stdin");
    for (int i = 0; i < connections; i++, at %= input_bytes) {
        uint32_t size;
        if (at + 12 > input_bytes) errno = 0, fail("the last frame on stdin is not whole");
        memcpy(&size, input + at, 4);
        all[i].frame = input + at;
        all[i].frame_bytes = 4 + (size_t)ntohl(size);
        at += all[i].frame_bytes;
        if (at > input_bytes) errno = 0, fail("the last frame on stdin is not whole");
    }
}

static void take_expected(const char *hex) {
    unsigned int byte;
    if (!strcmp(hex, "-")) return;
    for (; *hex; hex += 2, expected_bytes++) {
        if (expected_bytes == MAX_EXPECTED || sscanf(hex, "%2x", &byte) != 1) errno = 0, fail("EXPECTED is not hex");
        expected[expected_bytes] = (char)byte;
    }
}

int main(int argc, char **argv) {
    if (argc != 9)
        errno = 0, fail("usage: load PORT SERVER_PID CONNECTIONS IN_FLIGHT SECONDS MAX_REQUESTS ORDERED EXPECTED < frames");
    int port = atoi(argv[1]), server_pid = atoi(argv[2]), connections = atoi(argv[3]);
    in_flight = atoi(argv[4]);
    double seconds = atof(argv[5]);
    max_requests = strtoull(argv[6], NULL, 10);
    ordered = atoi(argv[7]);
    if (connections < 1 || in_flight < 1 || in_flight > MAX_IN_FLIGHT) errno = 0, fail("numbers out of range");
    take_expected(argv[8]);
    poller = epoll_create1(0);
    connection *all = calloc((size_t)connections, sizeof *all);
    if (!all) fail("memory");
    deal_frames(all, connections);
    for (int i = 0; i < connections; i++) open_connection(&all[i], i, port);

    double server_cpu = cpu_seconds_of(server_pid), cpu = own_cpu_seconds();
    int64_t began = now_ns();
    deadline = began + (int64_t)(seconds * 1e9);
    run(all, connections, began);
    double took = (double)(now_ns() - began) / 1e9;
    server_cpu = cpu_seconds_of(server_pid) - server_cpu;
    cpu = own_cpu_seconds() - cpu;

    printf("{\"requests\": %llu, \"seconds\": %.6f, \"p50_us\": %.0f, \"p99_us\": %.0f, \"cpu_seconds\": %.4f, "
           "\"server_cpu_seconds\": %.6f, \"reply_bytes\": %u, \"odd_sizes\": %llu}\n",
           (unsigned long long)answered, took, percentile_us(0.50), percentile_us(0.99), cpu, server_cpu, reply_bytes,
           (unsigned long long)odd_sizes);
    return 0;
}
