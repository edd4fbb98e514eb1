/* What the load generators share: a connection to the server on loopback, and the CPU time of the server. */
#include <netinet/in.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

enum { PER_ADDRESS = 10000, CONNECT_PATIENCE_S = 30 };

/* The connection with this number, or -1. One address has 28,000 ports by default, and those of closed connections are
 * not free for a minute, so that the connections come from several addresses (127.0.0.2, 127.0.0.3, ...). */
static int connect_to(int port, int number) {
    struct sockaddr_in from = {.sin_family = AF_INET}, to = {.sin_family = AF_INET, .sin_port = htons((uint16_t)port)};
    struct timeval patience = {.tv_sec = CONNECT_PATIENCE_S};
    from.sin_addr.s_addr = htonl(INADDR_LOOPBACK + 1 + (uint32_t)(number / PER_ADDRESS));
    to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    int fd = socket(AF_INET, SOCK_STREAM, 0), one = 1;
    if (fd < 0) return -1;
    setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &patience, sizeof patience); /* the queue of the listener may be full */
    setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience);
    setsockopt(fd, IPPROTO_IP, IP_BIND_ADDRESS_NO_PORT, &one, sizeof one);
    if (bind(fd, (struct sockaddr *)&from, sizeof from) || connect(fd, (struct sockaddr *)&to, sizeof to)) {
        close(fd);
        return -1;
    }
    return fd;
}

/* Of all threads of the process, to the nanosecond. 0 if there is no such process any more. */
static double cpu_seconds_of(int pid) {
    clockid_t clock;
    struct timespec used;
    if (clock_getcpuclockid(pid, &clock) || clock_gettime(clock, &used)) return 0;
    return (double)used.tv_sec + (double)used.tv_nsec / 1e9;
}
