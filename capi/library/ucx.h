// What the files about UCX share.
#ifndef SAR_LIBRARY_UCX_H
#define SAR_LIBRARY_UCX_H

#include "open.h"
#include "ucp.h"
#include "worker.h"

#define UCP_MEMBER(result, name, parameters) result(*name) parameters;
extern struct ucp_functions {
	UCP_FUNCTIONS(UCP_MEMBER)
} ucp;

struct ucx;

// An endpoint joins this worker to another one. It lives as long as the worker does.
struct endpoint {
	struct endpoint *next;
	struct ucx *owner;
	struct link *links;
	void *ep;          // NULL once it is being closed
	void *closing;     // the request of that
	ucs_status broken; // why it is of no more use, else UCS_OK
	size_t bytes;
	uint8_t address[]; // of the other worker
};

struct ucx {
	void *context, *worker, *address;
	size_t address_bytes;
	uint32_t key; // the upper half of tags of what this worker receives
	struct endpoint *endpoints;
	bool broken; // some endpoint is, and its links have yet to be told
};

extern const struct carrier ucx_carrier;

sar_status ucx_register(void *worker, void *base, size_t bytes, void **memory, char *text);
void ucx_unregister(void *worker, void *memory);

#endif
