/* table.h - calls of a library's table, which Go cannot make: it calls no function pointers. What the
 * library knows its things by are numbers here, as they need not be pointers, which Go would look at. */
#ifndef SAR_FOREIGN_TABLE_H
#define SAR_FOREIGN_TABLE_H

#include "sar.h"

/* Completes a request (table.go). Go exports it under its own name, without const. */
void sarforeign_done(uint64_t request, sar_status status, char *text);

static inline sar_status table_probe(const sar_transport *t, int32_t *automatic, char *text) {
  return t->probe ? t->probe(t->user, automatic, text) : SAR_OK;
}

static inline sar_status table_open(const sar_transport *t, int32_t rank, int32_t world, uintptr_t *worker,
                                    uint8_t *address, size_t *address_bytes, char *text) {
  sar_transport_worker about = {sizeof about, rank, world, (sar_transport_done)sarforeign_done};
  void *made = NULL;
  sar_status status = t->open(t->user, &about, &made, address, address_bytes, text);
  *worker = (uintptr_t)made;
  return status;
}

static inline void table_close(const sar_transport *t, uintptr_t worker) { t->close((void *)worker); }

static inline sar_status table_register(const sar_transport *t, uintptr_t worker, void *base, size_t bytes,
                                        uintptr_t *memory, char *text) {
  void *made = NULL;
  sar_status status = SAR_OK;
  if (t->register_memory) status = t->register_memory((void *)worker, base, bytes, &made, text);
  *memory = (uintptr_t)made;
  return status;
}

static inline void table_unregister(const sar_transport *t, uintptr_t worker, uintptr_t memory) {
  if (t->unregister_memory) t->unregister_memory((void *)worker, (void *)memory);
}

static inline sar_status table_connect(const sar_transport *t, uintptr_t worker, int32_t rank, const uint8_t *address,
                                       size_t address_bytes, uint32_t send_tag, uint32_t receive_tag, uintptr_t *link,
                                       char *text) {
  sar_transport_peer peer = {sizeof peer, rank, address, address_bytes, send_tag, receive_tag};
  void *made = NULL;
  sar_status status = t->connect((void *)worker, &peer, &made, text);
  *link = (uintptr_t)made;
  return status;
}

static inline void table_send(const sar_transport *t, uintptr_t link, const void *buffer, size_t bytes,
                              uintptr_t memory, uint64_t request) {
  t->send((void *)link, buffer, bytes, (void *)memory, request);
}

static inline void table_receive(const sar_transport *t, uintptr_t link, void *buffer, size_t bytes, uintptr_t memory,
                                 uint64_t request) {
  t->receive((void *)link, buffer, bytes, (void *)memory, request);
}

static inline void table_disconnect(const sar_transport *t, uintptr_t link) { t->disconnect((void *)link); }

#endif
