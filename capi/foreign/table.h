/* table.h - calls of a library's table, which Go cannot make: it calls no function pointers. */
#ifndef SAR_FOREIGN_TABLE_H
#define SAR_FOREIGN_TABLE_H

#include "sar.h"

/* Completes a request (table.go). Go exports it under its own name, without const. */
void sarforeign_done(uint64_t request, sar_status status, char *text);

static inline sar_status table_probe(const sar_transport *t, int32_t *automatic, char *text) {
  return t->probe ? t->probe(t->user, automatic, text) : SAR_OK;
}

static inline sar_status table_open(const sar_transport *t, int32_t rank, int32_t world, void **worker,
                                    uint8_t *address, size_t *address_bytes, char *text) {
  sar_transport_worker about = {sizeof about, rank, world, (sar_transport_done)sarforeign_done};
  return t->open(t->user, &about, worker, address, address_bytes, text);
}

static inline void table_close(const sar_transport *t, void *worker) { t->close(worker); }

static inline sar_status table_register(const sar_transport *t, void *worker, void *base, size_t bytes, void **memory,
                                        char *text) {
  return t->register_memory ? t->register_memory(worker, base, bytes, memory, text) : SAR_OK;
}

static inline void table_unregister(const sar_transport *t, void *worker, void *memory) {
  if (t->unregister_memory) t->unregister_memory(worker, memory);
}

static inline sar_status table_connect(const sar_transport *t, void *worker, int32_t rank, const uint8_t *address,
                                       size_t address_bytes, uint32_t send_tag, uint32_t receive_tag, void **link,
                                       char *text) {
  sar_transport_peer peer = {sizeof peer, rank, address, address_bytes, send_tag, receive_tag};
  return t->connect(worker, &peer, link, text);
}

static inline void table_send(const sar_transport *t, void *link, const void *buffer, size_t bytes, void *memory,
                              uint64_t request) {
  t->send(link, buffer, bytes, memory, request);
}

static inline void table_receive(const sar_transport *t, void *link, void *buffer, size_t bytes, void *memory,
                                 uint64_t request) {
  t->receive(link, buffer, bytes, memory, request);
}

static inline void table_disconnect(const sar_transport *t, void *link) { t->disconnect(link); }

#endif
