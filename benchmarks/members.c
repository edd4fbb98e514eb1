/* Many static members that join one group at once, each on its own connection, until the group is stable.
 *
 *   members PORT SERVER_PID GROUP COUNT SESSION_MS HEARTBEAT_MS PATIENCE_S < subscription and assignment
 *
 * On stdin: the subscription's length in two bytes, the subscription, the assignment of one partition. A member does
 * what a client does: it joins (JoinGroup v9), syncs (SyncGroup v5; the leader with an assignment for every member
 * in its JoinGroup response), and then sends heartbeats (v4). After a rebalance it rejoins with its member id. All
 * connections are open, and have been answered an ApiVersions, before the clock starts and the CPU time of the server
 * counts. It stops when a generation has COUNT members and each of them has its assignment.
 * Prints one JSON object; if the group does not become stable within PATIENCE_S, the state of the members. In C, because
 * a client in Python would measure itself.
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

enum { MAX_INPUT = 4096, READ_BYTES = 256 * 1024, MAX_EVENTS = 512, MAX_ID = 256 };
enum { JOIN_GROUP = 11, HEARTBEAT = 12, SYNC_GROUP = 14, API_VERSIONS = 18 };
enum { NONE = 0, ILLEGAL_GENERATION = 22, REBALANCE_IN_PROGRESS = 27 };
static const char CLIENT_ID[] = "bench", PROTOCOL_TYPE[] = "consumer", PROTOCOL[] = "range";

typedef struct {
    unsigned char *data;
    size_t used, room;
} bytes;

typedef struct {
    int fd, asked; /* asked: the API of the request in flight, 0 for none */
    char instance_id[32], id[MAX_ID];
    uint32_t correlation_id;
    int32_t generation;
    int has_assignment, wants_write;
    int64_t next_beat;
    bytes in, out;
    size_t out_done;
} member;

static member *all;
static int count, poller, session_ms, greeted;
static const char *group;
static unsigned char input[MAX_INPUT];
static size_t subscription_bytes, assignment_bytes;
static int64_t heartbeat_ns;
static int32_t full_generation = -1, last_generation; /* full: it has all members */
static int assigned;                                  /* members with an assignment of the full generation */
static size_t most_shown;                             /* members in a leader's JoinGroup response */
static uint64_t joins, syncs, beats;

static void fail(const char *what) {
    fprintf(stderr, "members: %s%s%s\n", what, errno ? ": " : "", errno ? strerror(errno) : "");
    exit(1);
}

static int64_t now_ns(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

/* -- writing -------------------------------------------------------------------------------------------------------- */

static void put(bytes *b, const void *data, size_t size) {
    if (b->used + size > b->room) {
        b->room = 2 * (b->used + size);
        if (!(b->data = realloc(b->data, b->room))) fail("memory");
    }
    memcpy(b->data + b->used, data, size);
    b->used += size;
}

static void put_int16(bytes *b, int number) {
    uint16_t value = htons((uint16_t)number);
    put(b, &value, 2);
}

static void put_int32(bytes *b, int32_t number) {
    uint32_t value = htonl((uint32_t)number);
    put(b, &value, 4);
}

static void put_uvarint(bytes *b, size_t number) {
    unsigned char byte;
    for (; number > 0x7f; number >>= 7) byte = (unsigned char)(number | 0x80), put(b, &byte, 1);
    byte = (unsigned char)number, put(b, &byte, 1);
}

static void put_compact(bytes *b, const void *data, size_t size) {
    put_uvarint(b, size + 1);
    put(b, data, size);
}

static void put_string(bytes *b, const char *text) { put_compact(b, text, strlen(text)); }
static void put_no_tags(bytes *b) { put(b, "", 1); }

/* -- requests ------------------------------------------------------------------------------------------------------- */

static void watch(member *m, int write_too) {
    struct epoll_event event = {.events = EPOLLIN | (write_too ? (uint32_t)EPOLLOUT : 0), .data.ptr = m};
    if (epoll_ctl(poller, EPOLL_CTL_MOD, m->fd, &event)) fail("epoll_ctl");
    m->wants_write = write_too;
}

static void write_out(member *m) {
    while (m->out_done < m->out.used) {
        ssize_t n = write(m->fd, m->out.data + m->out_done, m->out.used - m->out_done);
        if (n < 0) {
            if (errno == EINTR) continue;
            if (errno != EAGAIN) fail("write");
            if (!m->wants_write) watch(m, 1);
            return;
        }
        m->out_done += (size_t)n;
    }
    m->out.used = m->out_done = 0;
    if (m->wants_write) watch(m, 0);
}

static void begin(member *m, int api, int version) {
    m->asked = api;
    put_int32(&m->out, 0); /* the length, known at the end */
    put_int16(&m->out, api);
    put_int16(&m->out, version);
    put_int32(&m->out, (int32_t)++m->correlation_id);
    put_int16(&m->out, (int)strlen(CLIENT_ID));
    put(&m->out, CLIENT_ID, strlen(CLIENT_ID));
    if (api == API_VERSIONS) return; /* v0, which has no tags and no fields */
    put_no_tags(&m->out);
    put_string(&m->out, group);
}

static void finish(member *m) {
    if (m->asked != API_VERSIONS) put_no_tags(&m->out);
    uint32_t size = htonl((uint32_t)(m->out.used - 4));
    memcpy(m->out.data, &size, 4);
    write_out(m);
}

/* As every client does first. The response proves that the server has accepted the connection. */
static void greet(member *m) {
    begin(m, API_VERSIONS, 0);
    finish(m);
}

static void join(member *m) {
    joins++;
    begin(m, JOIN_GROUP, 9);
    put_int32(&m->out, session_ms);
    put_int32(&m->out, session_ms);
    put_string(&m->out, m->id);
    put_string(&m->out, m->instance_id);
    put_string(&m->out, PROTOCOL_TYPE);
    put_uvarint(&m->out, 2); /* one protocol */
    put_string(&m->out, PROTOCOL);
    put_compact(&m->out, input + 2, subscription_bytes);
    put_no_tags(&m->out);
    put_uvarint(&m->out, 0); /* no reason */
    finish(m);
}

static void begin_sync(member *m) {
    syncs++;
    begin(m, SYNC_GROUP, 5);
    put_int32(&m->out, m->generation);
    put_string(&m->out, m->id);
    put_string(&m->out, m->instance_id);
    put_string(&m->out, PROTOCOL_TYPE);
    put_string(&m->out, PROTOCOL);
}

static void beat(member *m) {
    beats++;
    begin(m, HEARTBEAT, 4);
    put_int32(&m->out, m->generation);
    put_string(&m->out, m->id);
    put_string(&m->out, m->instance_id);
    finish(m);
}

/* -- replies -------------------------------------------------------------------------------------------------------- */

typedef struct {
    const unsigned char *at, *end;
} reader;

static const unsigned char *take(reader *r, size_t size) {
    if ((size_t)(r->end - r->at) < size) errno = 0, fail("a reply ends too early");
    r->at += size;
    return r->at - size;
}

static int take_int16(reader *r) {
    const unsigned char *p = take(r, 2);
    return (int16_t)(p[0] << 8 | p[1]);
}

static int32_t take_int32(reader *r) {
    uint32_t value;
    memcpy(&value, take(r, 4), 4);
    return (int32_t)ntohl(value);
}

static size_t take_uvarint(reader *r) {
    size_t value = 0;
    for (int shift = 0; shift < 35; shift += 7) {
        unsigned char byte = *take(r, 1);
        value |= (size_t)(byte & 0x7f) << shift;
        if (byte < 0x80) return value;
    }
    errno = 0, fail("a number of more than five bytes");
    return 0;
}

/* Bytes or a string, possibly null; returns its start and sets its size. */
static const unsigned char *take_compact(reader *r, size_t *size) {
    size_t length = take_uvarint(r);
    *size = length ? length - 1 : 0;
    return take(r, *size);
}

/* The leader's assignment for every member in its JoinGroup response. */
static void assign_all(member *m, reader *r, size_t shown) {
    unsigned char *assignment = input + 2 + subscription_bytes;
    size_t size;
    put_uvarint(&m->out, shown + 1);
    for (size_t i = 0; i < shown; i++) {
        const unsigned char *id = take_compact(r, &size);
        put_compact(&m->out, id, size);
        take_compact(r, &size); /* its instance id */
        take_compact(r, &size); /* its subscription */
        take(r, 1);
        uint32_t partition = htonl((uint32_t)i);
        memcpy(assignment + assignment_bytes - 8, &partition, 4); /* before the length of the user data */
        put_compact(&m->out, assignment, assignment_bytes);
        put_no_tags(&m->out);
    }
    if (shown > most_shown) most_shown = shown;
    if (shown == (size_t)count) full_generation = m->generation, assigned = 0;
}

static void joined(member *m, reader *r) {
    size_t size, leader_size;
    int code = take_int16(r);
    if (code) fprintf(stderr, "members: JoinGroup was answered with error %d\n", code), exit(1);
    m->generation = take_int32(r);
    if (m->generation > last_generation) last_generation = m->generation;
    m->has_assignment = 0;
    take_compact(r, &size); /* protocol type */
    take_compact(r, &size); /* protocol */
    const unsigned char *leader = take_compact(r, &leader_size);
    take(r, 1); /* whether to skip the assignment */
    const unsigned char *id = take_compact(r, &size);
    if (size >= MAX_ID) errno = 0, fail("a member id of impossible length");
    memcpy(m->id, id, size);
    m->id[size] = 0;
    size_t shown = take_uvarint(r) - 1;
    begin_sync(m);
    if (leader_size == size && !memcmp(leader, id, size)) {
        assign_all(m, r, shown);
    } else {
        put_uvarint(&m->out, 1);
    }
    finish(m);
}

static void rejoin_or_fail(member *m, const char *what, int code) {
    if (code != REBALANCE_IN_PROGRESS && code != ILLEGAL_GENERATION)
        fprintf(stderr, "members: %s was answered with error %d\n", what, code), exit(1);
    join(m);
}

static void synced(member *m, reader *r, int64_t now) {
    int code = take_int16(r);
    if (code) {
        rejoin_or_fail(m, "SyncGroup", code);
        return;
    }
    size_t size;
    take_compact(r, &size); /* protocol type */
    take_compact(r, &size); /* protocol */
    take_compact(r, &size);
    if (size != assignment_bytes) errno = 0, fail("an assignment of another size than the leader gave");
    m->has_assignment = 1;
    m->next_beat = now + heartbeat_ns;
    assigned += m->generation == full_generation;
}

static void take_reply(member *m, const unsigned char *data, size_t size, int64_t now) {
    reader r = {data, data + size};
    int api = m->asked;
    if ((uint32_t)take_int32(&r) != m->correlation_id) errno = 0, fail("a reply with another correlation id");
    m->asked = 0;
    if (api == API_VERSIONS) {
        greeted++;
        return;
    }
    take(&r, 1);    /* the header's tags */
    take_int32(&r); /* throttle time */
    if (api == JOIN_GROUP) joined(m, &r);
    if (api == SYNC_GROUP) synced(m, &r, now);
    if (api == HEARTBEAT) {
        int code = take_int16(&r);
        m->next_beat = now + heartbeat_ns;
        if (code) m->has_assignment = 0, rejoin_or_fail(m, "Heartbeat", code);
    }
}

static void read_in(member *m) {
    static unsigned char buffer[READ_BYTES];
    ssize_t n = read(m->fd, buffer, READ_BYTES);
    if (n == 0) errno = 0, fail("the server closed a connection");
    if (n < 0) {
        if (errno == EAGAIN || errno == EINTR) return;
        fail("read");
    }
    put(&m->in, buffer, (size_t)n);
    while (m->in.used >= 4) {
        uint32_t size;
        memcpy(&size, m->in.data, 4);
        size = ntohl(size);
        if (m->in.used < 4 + (size_t)size) return;
        take_reply(m, m->in.data + 4, size, now_ns());
        m->in.used -= 4 + (size_t)size;
        memmove(m->in.data, m->in.data + 4 + size, m->in.used);
    }
}

/* -- the run -------------------------------------------------------------------------------------------------------- */

static void open_member(member *m, int number, int port) {
    m->fd = connect_to(port, number);
    if (m->fd < 0) fail("connect");
    int one = 1;
    setsockopt(m->fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
    fcntl(m->fd, F_SETFL, O_NONBLOCK);
    snprintf(m->instance_id, sizeof m->instance_id, "instance-%05d", number);
    struct epoll_event event = {.events = EPOLLIN, .data.ptr = m};
    if (epoll_ctl(poller, EPOLL_CTL_ADD, m->fd, &event)) fail("epoll_ctl");
}

static void beat_those_due(int64_t now) {
    for (int i = 0; i < count; i++) {
        if (all[i].has_assignment && !all[i].asked && all[i].next_beat <= now) beat(&all[i]);
    }
}

/* The state of the members at the timeout. */
static void fail_with_state(const char *what) {
    int greeting = 0, joining = 0, syncing = 0, stable = 0;
    for (int i = 0; i < count; i++) {
        greeting += all[i].asked == API_VERSIONS;
        joining += all[i].asked == JOIN_GROUP;
        syncing += all[i].asked == SYNC_GROUP;
        stable += all[i].has_assignment;
    }
    fprintf(stderr,
            "members: %s; of %d members %d have an assignment, and %d wait for ApiVersions, %d for JoinGroup, %d for "
            "SyncGroup; last generation %d, a leader was shown at most %zu members\n",
            what, count, stable, greeting, joining, syncing, last_generation, most_shown);
    exit(1);
}

/* Answers replies until the number reaches all members. */
static void until_all(const int *number, int64_t give_up, const char *otherwise) {
    struct epoll_event events[MAX_EVENTS];
    int64_t looked = 0;
    while (*number < count) {
        int ready = epoll_wait(poller, events, MAX_EVENTS, 1);
        if (ready < 0 && errno != EINTR) fail("epoll_wait");
        for (int i = 0; i < ready; i++) {
            member *m = events[i].data.ptr;
            if (events[i].events & EPOLLOUT) write_out(m);
            if (events[i].events & ~(uint32_t)EPOLLOUT) read_in(m);
        }
        int64_t now = now_ns();
        if (now - looked > 1000000) beat_those_due(now), looked = now; /* once in a millisecond */
        if (now > give_up) fail_with_state(otherwise);
    }
}

int main(int argc, char **argv) {
    if (argc != 8)
        errno = 0, fail("usage: members PORT SERVER_PID GROUP COUNT SESSION_MS HEARTBEAT_MS PATIENCE_S < bytes");
    int port = atoi(argv[1]), server_pid = atoi(argv[2]);
    group = argv[3];
    count = atoi(argv[4]);
    session_ms = atoi(argv[5]);
    heartbeat_ns = atoll(argv[6]) * 1000000;
    size_t input_bytes = fread(input, 1, MAX_INPUT, stdin);
    if (count < 1 || input_bytes < 2) errno = 0, fail("numbers out of range");
    subscription_bytes = (size_t)(input[0] << 8 | input[1]);
    if (input_bytes < 2 + subscription_bytes + 8) errno = 0, fail("no assignment on stdin");
    assignment_bytes = input_bytes - 2 - subscription_bytes;
    poller = epoll_create1(0);
    if (!(all = calloc((size_t)count, sizeof *all))) fail("memory");
    int64_t patience = atoll(argv[7]) * 1000000000;
    for (int i = 0; i < count; i++) open_member(&all[i], i, port), greet(&all[i]);
    until_all(&greeted, now_ns() + patience, "ApiVersions was not answered in time");

    int64_t began = now_ns();
    double server_cpu = cpu_seconds_of(server_pid);
    for (int i = 0; i < count; i++) join(&all[i]);
    until_all(&assigned, began + patience, "the group did not become stable in time");
    double took = (double)(now_ns() - began) / 1e9;
    server_cpu = cpu_seconds_of(server_pid) - server_cpu;

    struct rusage used;
    getrusage(RUSAGE_SELF, &used);
    double cpu = (double)(used.ru_utime.tv_sec + used.ru_stime.tv_sec) +
                 (double)(used.ru_utime.tv_usec + used.ru_stime.tv_usec) / 1e6;
    printf("{\"seconds\": %.6f, \"generation\": %d, \"joins\": %llu, \"syncs\": %llu, \"heartbeats\": %llu, "
           "\"cpu_seconds\": %.4f, \"server_cpu_seconds\": %.6f}\n",
           took, last_generation, (unsigned long long)joins, (unsigned long long)syncs, (unsigned long long)beats, cpu,
           server_cpu);
    return 0;
}
