/* A transport of one's own: sockets_transport is a table for sar_transport_register whose messages go
 * through TCP connections of this host, two for a link, one each way. A thread for each worker moves
 * them; it sleeps in poll while there is nothing to do. Deadlines, the proof of who is at the other
 * end and all else are the engine's. */
#ifndef SOCKETS_H
#define SOCKETS_H

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "sar.h"

/* A message on its way. */
typedef struct sockets_message {
  struct sockets_message *next;
  char *bytes;
  size_t left;
  uint64_t request;
} sockets_message;

/* One way of a link. */
typedef struct {
  int fd; /* -1: not there yet, or lost */
  int lost;
  sockets_message *first, **last;
} sockets_way;

typedef struct sockets_link {
  struct sockets_link *next;
  struct sockets_worker *worker;
  uint32_t receive_tag;
  int ended; /* disconnect was called: the thread frees the link */
  sockets_way out, in;
} sockets_link;

enum { SOCKETS_NEWCOMERS = 256 };

/* A connection that has not said yet which link it is for, or for which there is none yet. */
typedef struct {
  int fd;
  uint32_t tag;
  size_t got;
} sockets_newcomer;

typedef struct sockets_worker {
  pthread_mutex_t lock; /* guards all below */
  pthread_t thread;
  sar_transport_done done;
  int listener, bell[2], closing; /* who posts writes into bell[1] */
  sockets_link *links;
  sockets_newcomer newcomers[SOCKETS_NEWCOMERS];
  int num_newcomers;
} sockets_worker;

static void sockets_ring(sockets_worker *w) {
  if (write(w->bell[1], "", 1) < 0) return; /* full: the thread wakes anyway */
}

static sar_status sockets_refuse(char *text, const char *what) {
  snprintf(text, SAR_TRANSPORT_TEXT, "%s: %s", what, strerror(errno));
  return SAR_ERR_IO;
}

/* Completes a message, or with a status all of a way. */
static void sockets_complete(sockets_worker *w, sockets_way *way, sar_status status) {
  sockets_message *m = way->first;
  way->first = m->next;
  if (!way->first) way->last = &way->first;
  w->done(m->request, status, NULL);
  free(m);
}

static void sockets_end(sockets_worker *w, sockets_way *way, sar_status status) {
  if (way->fd >= 0) close(way->fd);
  way->fd = -1;
  way->lost = 1;
  while (way->first) sockets_complete(w, way, status);
}

/* Moves bytes of a way until it would block. */
static void sockets_move(sockets_worker *w, sockets_way *way, int sends) {
  while (way->first && way->fd >= 0) {
    sockets_message *m = way->first;
    ssize_t n = sends ? send(way->fd, m->bytes, m->left, MSG_NOSIGNAL) : recv(way->fd, m->bytes, m->left, 0);
    if (n < 0 && (errno == EAGAIN || errno == ENOTCONN)) return;
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) {
      sockets_end(w, way, SAR_ERR_PEER_LOST);
      return;
    }
    m->bytes += n;
    m->left -= (size_t)n;
    if (m->left == 0) sockets_complete(w, way, SAR_OK);
  }
}

/* Gives connections that have come to their links. */
static void sockets_place(sockets_worker *w) {
  for (int i = 0; i < w->num_newcomers; i++) {
    sockets_newcomer *c = &w->newcomers[i];
    int gone = 0;
    if (c->got < sizeof c->tag) {
      ssize_t n = recv(c->fd, (char *)&c->tag + c->got, sizeof c->tag - c->got, 0);
      if (n > 0) c->got += (size_t)n;
      gone = n == 0 || (n < 0 && errno != EAGAIN && errno != EINTR);
    }
    sockets_link *l = w->links;
    while (l && (c->got < sizeof c->tag || l->receive_tag != c->tag || l->in.fd >= 0 || l->in.lost)) l = l->next;
    if (l) l->in.fd = c->fd;
    if (gone) close(c->fd);
    if (l || gone) w->newcomers[i--] = w->newcomers[--w->num_newcomers];
  }
}

static void sockets_accept(sockets_worker *w) {
  int fd;
  while ((fd = accept(w->listener, NULL, NULL)) >= 0) {
    fcntl(fd, F_SETFL, O_NONBLOCK);
    fcntl(fd, F_SETFD, FD_CLOEXEC);
    if (w->num_newcomers == SOCKETS_NEWCOMERS) close(w->newcomers[--w->num_newcomers].fd);
    w->newcomers[w->num_newcomers++] = (sockets_newcomer){fd, 0, 0};
  }
}

static void sockets_sweep(sockets_worker *w) {
  for (sockets_link **at = &w->links; *at;) {
    sockets_link *l = *at;
    if (l->ended) {
      *at = l->next;
      sockets_end(w, &l->out, SAR_ERR_CLOSED);
      sockets_end(w, &l->in, SAR_ERR_CLOSED);
      free(l);
      continue;
    }
    sockets_move(w, &l->out, 1);
    sockets_move(w, &l->in, 0);
    at = &l->next;
  }
}

/* What the thread waits for: both ways of each link that have something to move, and who comes. */
static nfds_t sockets_watch(sockets_worker *w, struct pollfd **watched, nfds_t *room) {
  nfds_t need = 2 + (nfds_t)w->num_newcomers, n = 0;
  for (sockets_link *l = w->links; l; l = l->next) need += 2;
  if (need > *room) {
    *watched = realloc(*watched, need * sizeof **watched);
    *room = need;
    if (!*watched) abort();
  }
  struct pollfd *p = *watched;
  p[n++] = (struct pollfd){w->bell[0], POLLIN, 0};
  p[n++] = (struct pollfd){w->listener, POLLIN, 0};
  for (int i = 0; i < w->num_newcomers; i++)
    if (w->newcomers[i].got < sizeof w->newcomers[i].tag) p[n++] = (struct pollfd){w->newcomers[i].fd, POLLIN, 0};
  for (sockets_link *l = w->links; l; l = l->next) {
    if (l->out.first && l->out.fd >= 0) p[n++] = (struct pollfd){l->out.fd, POLLOUT, 0};
    if (l->in.first && l->in.fd >= 0) p[n++] = (struct pollfd){l->in.fd, POLLIN, 0};
  }
  return n;
}

static void *sockets_run(void *of) {
  sockets_worker *w = of;
  struct pollfd *watched = NULL;
  nfds_t room = 0;
  char heard[256];
  pthread_mutex_lock(&w->lock);
  while (!w->closing) {
    nfds_t n = sockets_watch(w, &watched, &room);
    pthread_mutex_unlock(&w->lock);
    poll(watched, n, -1);
    pthread_mutex_lock(&w->lock);
    while (read(w->bell[0], heard, sizeof heard) > 0) continue;
    sockets_accept(w);
    sockets_place(w);
    sockets_sweep(w);
  }
  pthread_mutex_unlock(&w->lock);
  free(watched);
  return NULL;
}

static void sockets_free(sockets_worker *w) {
  while (w->num_newcomers) close(w->newcomers[--w->num_newcomers].fd);
  if (w->listener >= 0) close(w->listener);
  if (w->bell[0] >= 0) close(w->bell[0]), close(w->bell[1]);
  pthread_mutex_destroy(&w->lock);
  free(w);
}

static sar_status sockets_open(void *user, const sar_transport_worker *about, void **worker, uint8_t *address,
                               size_t *address_bytes, char *text) {
  (void)user;
  sockets_worker *w = calloc(1, sizeof *w);
  struct sockaddr_in own = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
  socklen_t size = sizeof own;
  if (!w) return sockets_refuse(text, "opening sockets");
  w->done = about->done;
  w->bell[0] = -1;
  pthread_mutex_init(&w->lock, NULL);
  w->listener = socket(AF_INET, SOCK_STREAM, 0);
  if (w->listener < 0 || bind(w->listener, (struct sockaddr *)&own, size) != 0 || listen(w->listener, 128) != 0 ||
      getsockname(w->listener, (struct sockaddr *)&own, &size) != 0 || pipe(w->bell) != 0) {
    sar_status status = sockets_refuse(text, "opening sockets");
    sockets_free(w);
    return status;
  }
  int fds[] = {w->listener, w->bell[0], w->bell[1]};
  for (int i = 0; i < 3; i++) {
    fcntl(fds[i], F_SETFL, O_NONBLOCK);
    fcntl(fds[i], F_SETFD, FD_CLOEXEC);
  }
  sigset_t all, before; /* signals are for the threads that were there before */
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  errno = pthread_create(&w->thread, NULL, sockets_run, w);
  pthread_sigmask(SIG_SETMASK, &before, NULL);
  if (errno != 0) {
    sar_status status = sockets_refuse(text, "starting a thread");
    sockets_free(w);
    return status;
  }
  memcpy(address, &own, sizeof own);
  *address_bytes = sizeof own;
  *worker = w;
  return SAR_OK;
}

static void sockets_close(void *worker) {
  sockets_worker *w = worker;
  pthread_mutex_lock(&w->lock);
  w->closing = 1;
  sockets_ring(w);
  pthread_mutex_unlock(&w->lock);
  pthread_join(w->thread, NULL);
  sockets_sweep(w);
  sockets_free(w);
}

static sar_status sockets_connect(void *worker, const sar_transport_peer *peer, void **link, char *text) {
  sockets_worker *w = worker;
  struct sockaddr_in to;
  if (peer->address_bytes != sizeof to) {
    snprintf(text, SAR_TRANSPORT_TEXT, "an address of %zu bytes, %zu expected", peer->address_bytes, sizeof to);
    return SAR_ERR_VALUE;
  }
  memcpy(&to, peer->address, sizeof to);
  sockets_link *l = calloc(1, sizeof *l);
  int fd = socket(AF_INET, SOCK_STREAM, 0), on = 1;
  /* A connection of this host is there at once; the peer's listener keeps it until it is accepted. */
  if (!l || fd < 0 || connect(fd, (struct sockaddr *)&to, sizeof to) != 0 ||
      send(fd, &peer->send_tag, sizeof peer->send_tag, MSG_NOSIGNAL) != sizeof peer->send_tag) {
    sar_status status = sockets_refuse(text, "connecting");
    if (fd >= 0) close(fd);
    free(l);
    return status;
  }
  setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
  fcntl(fd, F_SETFL, O_NONBLOCK);
  fcntl(fd, F_SETFD, FD_CLOEXEC);
  l->worker = w;
  l->receive_tag = peer->receive_tag;
  l->out = (sockets_way){.fd = fd, .last = &l->out.first};
  l->in = (sockets_way){.fd = -1, .last = &l->in.first};
  pthread_mutex_lock(&w->lock);
  l->next = w->links;
  w->links = l;
  sockets_ring(w);
  pthread_mutex_unlock(&w->lock);
  *link = l;
  return SAR_OK;
}

static void sockets_post(sockets_link *l, sockets_way *way, char *bytes, size_t size, uint64_t request) {
  sockets_worker *w = l->worker;
  sockets_message *m = malloc(sizeof *m);
  pthread_mutex_lock(&w->lock);
  if (!m || way->lost) {
    w->done(request, m ? SAR_ERR_PEER_LOST : SAR_ERR_IO, m ? NULL : "no memory");
    free(m);
  } else {
    *m = (sockets_message){NULL, bytes, size, request};
    *way->last = m;
    way->last = &m->next;
    sockets_ring(w);
  }
  pthread_mutex_unlock(&w->lock);
}

static void sockets_send(void *link, const void *buffer, size_t bytes, void *memory, uint64_t request) {
  sockets_link *l = link;
  (void)memory;
  sockets_post(l, &l->out, (char *)(uintptr_t)buffer, bytes, request);
}

static void sockets_receive(void *link, void *buffer, size_t bytes, void *memory, uint64_t request) {
  sockets_link *l = link;
  (void)memory;
  sockets_post(l, &l->in, buffer, bytes, request);
}

static void sockets_disconnect(void *link) {
  sockets_link *l = link;
  sockets_worker *w = l->worker;
  pthread_mutex_lock(&w->lock);
  l->ended = 1;
  sockets_ring(w);
  pthread_mutex_unlock(&w->lock);
}

static const sar_transport sockets_transport = {
    .size = sizeof(sar_transport),
    .name = "sockets",
    .flags = SAR_TRANSPORT_REVOKES, /* the thread leaves a buffer alone once it has called done */
    .byte_cost = 0.7,
    .open = sockets_open,
    .close = sockets_close,
    .connect = sockets_connect,
    .send = sockets_send,
    .receive = sockets_receive,
    .disconnect = sockets_disconnect,
};

#endif
