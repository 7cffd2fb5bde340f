/* A streaming completions endpoint whose timing is known: token k of a request is written TTFT + k * ITL after the
 * request was read, on an absolute schedule, without queue or batching. What a client reports beyond that is its own.
 *
 *   cc -O2 -o known_timing known_timing.c && ./known_timing TTFT_MS ITL_MS [ids]
 *
 * Listens on a free port of 127.0.0.1 and prints it. Ends when stdin does, and then prints how late its own writes were.
 * With "ids" each event carries a token id and continuous usage, as vLLM sends them when asked to.
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/tcp.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/timerfd.h>
#include <time.h>
#include <unistd.h>

enum { MAX_EVENTS = 512, LATE_BINS = 10000, NOT_QUEUED = -1 };

typedef struct {
    char *data;
    size_t used, room;
} buffer;

typedef struct {
    int fd, place; /* place in the heap of due writes */
    bool chat;
    int prompt, wanted, written;
    int64_t due_ns;
    buffer in, out;
} client;

static int64_t ttft_ns, itl_ns;
static bool with_ids;
static int poller, clock_fd;
static client **heap;
static int heap_used, heap_room;
static uint64_t late_first[LATE_BINS], late_all[LATE_BINS], requests, tokens;

static int64_t now_ns(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

static void die(const char *what) {
    perror(what);
    exit(1);
}

/* --- buffers ------------------------------------------------------------------------------------------------------ */

static void reserve(buffer *b, size_t more) {
    if (b->used + more + 1 <= b->room) return;
    b->room = (b->used + more + 1) * 2;
    b->data = realloc(b->data, b->room);
    if (!b->data) die("realloc");
}

static void append(buffer *b, const char *data, size_t size) {
    reserve(b, size);
    memcpy(b->data + b->used, data, size);
    b->used += size;
}

static void consume(buffer *b, size_t size) {
    memmove(b->data, b->data + size, b->used - size);
    b->used -= size;
}

static void append_chunk(buffer *b, const char *data, size_t size) {
    char head[24];
    append(b, head, (size_t)sprintf(head, "%zx\r\n", size));
    append(b, data, size);
    append(b, "\r\n", 2);
}

/* --- the heap of due writes, earliest first ------------------------------------------------------------------------- */

static void put(int place, client *c) {
    heap[place] = c;
    c->place = place;
}

static void sift(int place, client *c) {
    for (; place > 0 && heap[(place - 1) / 2]->due_ns > c->due_ns; place = (place - 1) / 2) put(place, heap[(place - 1) / 2]);
    for (;;) {
        int child = 2 * place + 1;
        if (child >= heap_used) break;
        if (child + 1 < heap_used && heap[child + 1]->due_ns < heap[child]->due_ns) child++;
        if (heap[child]->due_ns >= c->due_ns) break;
        put(place, heap[child]);
        place = child;
    }
    put(place, c);
}

static void queue(client *c) {
    if (c->place == NOT_QUEUED) {
        if (heap_used == heap_room) {
            heap_room = heap_room ? 2 * heap_room : 256;
            heap = realloc(heap, sizeof *heap * (size_t)heap_room);
            if (!heap) die("realloc");
        }
        put(heap_used++, c);
    }
    sift(c->place, c);
}

static void unqueue(client *c) {
    if (c->place == NOT_QUEUED) return;
    client *last = heap[--heap_used];
    if (last != c) sift(c->place, last);
    c->place = NOT_QUEUED;
}

/* --- answers ---------------------------------------------------------------------------------------------------------- */

static bool flush(client *c) {
    while (c->out.used) {
        ssize_t sent = send(c->fd, c->out.data, c->out.used, MSG_NOSIGNAL);
        if (sent < 0) return errno == EAGAIN || errno == EINTR; /* the edge-triggered EPOLLOUT calls again */
        consume(&c->out, (size_t)sent);
    }
    return true;
}

static void add_event(client *c, const char *choices, bool usage) {
    char text[700], count[120] = "";
    if (usage)
        sprintf(count, ",\"usage\":{\"prompt_tokens\":%d,\"total_tokens\":%d,\"completion_tokens\":%d}", c->prompt,
                c->prompt + c->written, c->written);
    int size = sprintf(text, "data: {\"id\":\"cmpl-5f0c9d\",\"object\":\"%s\",\"created\":1,\"model\":\"known\",\"choices\":[%s]%s}\n\n",
                       c->chat ? "chat.completion.chunk" : "text_completion", choices, count);
    append_chunk(&c->out, text, (size_t)size);
}

static void add_token(client *c) {
    char choice[300], id[60] = "";
    c->written++;
    const char *finish = c->written == c->wanted ? "\"length\"" : "null";
    if (with_ids) sprintf(id, ",\"token_ids\":[%d]", 1000 + c->written);
    sprintf(choice, "{\"index\":0,%s,\"logprobs\":null,\"finish_reason\":%s%s}",
            c->chat ? "\"delta\":{\"content\":\" word\"}" : "\"text\":\" word\"", finish, id);
    add_event(c, choice, with_ids);
    tokens++;
}

static void count_late(const client *c, int64_t late_ns) {
    int64_t bin = late_ns / 100000;
    if (bin >= LATE_BINS) bin = LATE_BINS - 1;
    late_all[bin]++;
    if (c->written == 0) late_first[bin]++;
}

static int number_after(const char *body, const char *key, int otherwise) {
    const char *at = strstr(body, key);
    return at ? atoi(at + strlen(key) + strspn(at + strlen(key), ": ")) : otherwise;
}

static int prompt_length(const char *body) {
    const char *at = strstr(body, "\"prompt\":[");
    int count = at != NULL;
    for (; at && *at && *at != ']'; at++) count += *at == ',';
    return count ? count : 1;
}

static void answer(client *c, const char *head, const char *body) {
    c->chat = strstr(head, "/chat/") != NULL;
    c->wanted = number_after(body, "\"max_tokens\"", 16);
    c->prompt = prompt_length(body);
    c->written = 0;
    const char *reply = "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n";
    append(&c->out, reply, strlen(reply));
    c->due_ns = now_ns() + ttft_ns;
    requests++;
    queue(c);
}

/* Take the request in c->in if it is whole and none is being answered. */
static void take_request(client *c) {
    if (c->place != NOT_QUEUED || !c->in.used) return;
    c->in.data[c->in.used] = 0;
    char *end = strstr(c->in.data, "\r\n\r\n");
    char *length = end ? strcasestr(c->in.data, "content-length:") : NULL;
    if (!length || length > end) return;
    size_t head = (size_t)(end - c->in.data) + 4, body = strtoul(length + 15, NULL, 10);
    if (c->in.used < head + body) return;
    end[2] = 0;
    answer(c, c->in.data, c->in.data + head);
    consume(&c->in, head + body);
}

static void drop(client *c) {
    unqueue(c);
    close(c->fd);
    free(c->in.data);
    free(c->out.data);
    free(c);
}

static void write_due(void) {
    int64_t now;
    while (heap_used && heap[0]->due_ns <= (now = now_ns())) {
        client *c = heap[0];
        count_late(c, now - c->due_ns);
        add_token(c);
        c->due_ns += itl_ns;
        if (c->written < c->wanted) {
            queue(c);
        } else {
            unqueue(c);
            add_event(c, "", true);
            append_chunk(&c->out, "data: [DONE]\n\n", 14);
            append(&c->out, "0\r\n\r\n", 5);
        }
        if (!flush(c)) drop(c);
        else take_request(c);
    }
    struct itimerspec when = {0};
    if (heap_used) when.it_value = (struct timespec){heap[0]->due_ns / 1000000000, heap[0]->due_ns % 1000000000};
    timerfd_settime(clock_fd, TFD_TIMER_ABSTIME, &when, NULL);
}

/* --- sockets ---------------------------------------------------------------------------------------------------------- */

static void watch(int fd, uint32_t events, void *tag) {
    struct epoll_event e = {.events = events, .data.ptr = tag};
    if (epoll_ctl(poller, EPOLL_CTL_ADD, fd, &e)) die("epoll_ctl");
}

static void accept_all(int listener) {
    int fd, one = 1;
    while ((fd = accept4(listener, NULL, NULL, SOCK_NONBLOCK)) >= 0) {
        client *c = calloc(1, sizeof *c);
        if (!c) die("calloc");
        c->fd = fd;
        c->place = NOT_QUEUED;
        reserve(&c->in, 4096);
        setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
        watch(fd, EPOLLIN | EPOLLOUT | EPOLLET | EPOLLRDHUP, c);
    }
}

static void serve(client *c) {
    for (;;) {
        reserve(&c->in, 65536);
        ssize_t got = recv(c->fd, c->in.data + c->in.used, 65536, 0);
        if (got > 0) {
            c->in.used += (size_t)got;
        } else if (got < 0 && (errno == EAGAIN || errno == EINTR)) {
            break;
        } else {
            drop(c);
            return;
        }
    }
    take_request(c);
    if (!flush(c)) drop(c);
}

static double late_ms(const uint64_t *bins, double share) {
    uint64_t total = 0, below = 0;
    for (int k = 0; k < LATE_BINS; k++) total += bins[k];
    for (int k = 0; k < LATE_BINS; k++)
        if (total && (below += bins[k]) >= share * (double)total) return (k + 1) / 10.0;
    return 0;
}

static int listen_anywhere(void) {
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0);
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t size = sizeof at;
    if (bind(fd, (struct sockaddr *)&at, size) || listen(fd, 4096) || getsockname(fd, (struct sockaddr *)&at, &size))
        die("listen");
    printf("%d\n", ntohs(at.sin_port));
    fflush(stdout);
    return fd;
}

int main(int count, char **words) {
    if (count < 3) {
        fprintf(stderr, "usage: known_timing TTFT_MS ITL_MS [ids]\n");
        return 2;
    }
    ttft_ns = (int64_t)(atof(words[1]) * 1e6);
    itl_ns = (int64_t)(atof(words[2]) * 1e6);
    with_ids = count > 3 && !strcmp(words[3], "ids");
    static char on_listen, on_clock, on_stdin;
    poller = epoll_create1(0);
    clock_fd = timerfd_create(CLOCK_MONOTONIC, TFD_NONBLOCK);
    int listener = listen_anywhere();
    watch(listener, EPOLLIN, &on_listen);
    watch(clock_fd, EPOLLIN, &on_clock);
    watch(0, EPOLLIN | EPOLLRDHUP, &on_stdin);
    for (bool on = true; on;) {
        struct epoll_event events[MAX_EVENTS];
        int found = epoll_wait(poller, events, MAX_EVENTS, -1);
        for (int k = 0; k < found; k++) {
            void *tag = events[k].data.ptr;
            char scrap[64];
            if (tag == &on_listen) accept_all(listener);
            else if (tag == &on_clock) on = read(clock_fd, scrap, 8) != 0;
            else if (tag == &on_stdin) on = read(0, scrap, sizeof scrap) > 0;
            else serve(tag);
        }
        write_due();
    }
    struct timespec cpu;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &cpu);
    printf("{\"requests\": %lu, \"tokens\": %lu, \"late_first_p99_ms\": %.1f, \"late_p99_ms\": %.1f, \"cpu_s\": %.2f}\n", requests,
           tokens, late_ms(late_first, 0.99), late_ms(late_all, 0.99), (double)cpu.tv_sec + (double)cpu.tv_nsec / 1e9);
    return 0;
}
