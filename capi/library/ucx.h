// UCX as a transport: its table, and what the files about it share.
#ifndef SAR_LIBRARY_UCX_H
#define SAR_LIBRARY_UCX_H

#include "open.h"
#include "ucp.h"
#include "worker.h"

extern struct library ucx_library;

const sar_transport *ucx_table(void);

// ucx_has_device tells whether a folder such as /sys/class/infiniband lists a device.
bool ucx_has_device(const char *folder);

// ucx_list adds to a list of SAR_TRANSPORT_TEXT bytes the transports that UCX names with their devices, and tells
// whether one of them moves data past both kernels. UCX says of a context what it could use, in lines such as
// "# resource 3 : md 1 dev 2 flags -- tcp/eth0", and of an endpoint what it uses, in lines such as
// "# lane[0]: 1:tcp/eth0.0 md[1] ...". What it said is written to.
bool ucx_list(char *list, char *said);

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
