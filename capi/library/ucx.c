// UCX as a transport. Each worker has a ucp_worker, which only its loop's thread calls, and one
// endpoint for each peer, whatever the number of links to it. A message is told from those of other
// links by its tag: the number of the link at its receiver, and a random number of the receiver's,
// which its address carries to those who have proved that they belong to the job.
#define _GNU_SOURCE
#include "ucx.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

struct ucp_functions ucp;

#define SYMBOL(result, name, parameters) {#name, (void **)&ucp.name},
static const struct symbol symbols[] = {UCP_FUNCTIONS(SYMBOL){NULL, NULL}};

// What UCX does to a process by default and may not do to one with Go's runtime in it: handlers for
// signals that the runtime handles, and patches of the functions that map memory. What it would
// write to the standard output comes with the status of a request.
static const struct setting settings[] = {
	{"UCX_ERROR_SIGNALS", "", 1},
	{"UCX_MEM_EVENTS", "n", 1},
	{"UCX_MEM_MMAP_HOOK_MODE", "none", 1},
	{"UCX_MEM_MALLOC_HOOKS", "n", 1},
	{"UCX_LOG_LEVEL", "fatal", 0},
	{"UCX_SYSV_ERROR_HANDLING", "y", 0}, // else shared memory is not used where the end of a peer is to be told
	{"UCX_POSIX_ERROR_HANDLING", "y", 0},
	{NULL, NULL, 0},
};

static int suits(char *why, size_t bytes)
{
	unsigned major, minor, release;
	ucp.ucp_get_version(&major, &minor, &release);
	if (major == UCP_MAJOR && minor >= UCP_LEAST_MINOR)
		return 0;
	snprintf(why, bytes, "UCX %u.%u.%u is not a version that SAR can use: it takes %d.%d or a later %d.x",
		major, minor, release, UCP_MAJOR, UCP_LEAST_MINOR, UCP_MAJOR);
	return -1;
}

struct library ucx_library = {
	.name = "UCX",
	.variable = "SAR_UCX_LIB",
	.file = "libucp.so.0",
	.install = "install the package libucx0 (Debian, Ubuntu) or ucx (Fedora, RHEL), or pip install libucx-cu12",
	.settings = settings,
	.symbols = symbols,
	.suits = suits,
};

static int trouble(struct loop *l, const char *doing, ucs_status status)
{
	snprintf(l->why, sizeof l->why, "UCX cannot %s: %s", doing, ucp.ucs_status_string(status));
	return -1;
}

static int begin(struct loop *l)
{
	struct ucx *u = l->state = calloc(1, sizeof *u);
	if (!u || getrandom(&u->key, sizeof u->key, 0) != sizeof u->key) {
		snprintf(l->why, sizeof l->why, "UCX: out of memory or of random numbers");
		return -1;
	}
	void *config;
	ucs_status status = ucp.ucp_config_read(NULL, NULL, &config);
	if (status)
		return trouble(l, "read its settings", status);
	struct ucp_params params = {.field_mask = UCP_PARAM_FEATURES, .features = UCP_FEATURE_TAG | UCP_FEATURE_WAKEUP};
	status = ucp.ucp_init_version(UCP_MAJOR, UCP_LEAST_MINOR, &params, config, &u->context);
	ucp.ucp_config_release(config);
	if (status)
		return trouble(l, "start, of which UCX_TLS and UCX_NET_DEVICES may be the cause", status);
	struct ucp_worker_params single = {.field_mask = UCP_WORKER_PARAM_THREAD_MODE, .thread_mode = UCS_THREAD_MODE_SINGLE};
	if ((status = ucp.ucp_worker_create(u->context, &single, &u->worker)))
		return trouble(l, "make a worker", status);
	if ((status = ucp.ucp_worker_get_address(u->worker, &u->address, &u->address_bytes)))
		return trouble(l, "tell its address", status);
	if ((status = ucp.ucp_worker_get_efd(u->worker, &l->fd)))
		return trouble(l, "tell when there is something to do", status);
	return 0;
}

static void close_endpoint(struct endpoint *e, uint32_t flags)
{
	if (!e->ep)
		return;
	struct ucp_request_param param = {.op_attr_mask = UCP_OP_FLAGS, .flags = flags};
	e->closing = ucp.ucp_ep_close_nbx(e->ep, &param);
	e->ep = NULL;
	if (ucs_is_error(e->closing))
		e->closing = NULL;
}

// closed tells whether the endpoint's end is complete.
static bool closed(struct endpoint *e)
{
	if (e->closing && ucp.ucp_request_check_status(e->closing) != UCS_INPROGRESS) {
		ucp.ucp_request_free(e->closing);
		e->closing = NULL;
	}
	return !e->closing;
}

enum { closing_ns = 1000000000 };

static void stop(struct loop *l)
{
	struct ucx *u = l->state;
	if (!u)
		return;
	for (struct endpoint *e = u->endpoints; e; e = e->next)
		close_endpoint(e, 0);
	int64_t end = now_ns() + closing_ns;
	for (struct endpoint *e = u->endpoints; e && now_ns() < end; e = closed(e) ? e->next : e)
		ucp.ucp_worker_progress(u->worker);
	for (struct endpoint *e = u->endpoints, *next; e; e = next) {
		next = e->next;
		free(e);
	}
	if (u->address)
		ucp.ucp_worker_release_address(u->worker, u->address);
	if (u->worker)
		ucp.ucp_worker_destroy(u->worker);
	if (u->context)
		ucp.ucp_cleanup(u->context);
	free(u);
}

// part_with ends what the links of broken endpoints wait for.
static void part_with(struct loop *l, struct ucx *u)
{
	u->broken = false;
	for (struct endpoint *e = u->endpoints; e; e = e->next) {
		if (!e->broken || !e->ep)
			continue;
		close_endpoint(e, UCP_EP_CLOSE_FORCE); // which ends what it sends
		for (struct link *k = e->links, *next; k; k = next) {
			next = k->next;
			cancel_receives(l, k);
		}
	}
}

static unsigned progress(struct loop *l)
{
	struct ucx *u = l->state;
	unsigned count = 0;
	for (unsigned n; count < 256 && (n = ucp.ucp_worker_progress(u->worker)); count += n)
		;
	if (u->broken) {
		part_with(l, u);
		count++;
	}
	return count;
}

static bool arm(struct loop *l)
{
	struct ucx *u = l->state;
	return ucp.ucp_worker_arm(u->worker) == UCS_OK;
}

static size_t address(struct loop *l, uint8_t *to, size_t bytes)
{
	struct ucx *u = l->state;
	size_t all = sizeof u->key + u->address_bytes;
	if (all <= bytes) {
		memcpy(to, &u->key, sizeof u->key);
		memcpy(to + sizeof u->key, u->address, u->address_bytes);
	}
	return all;
}

static void failed(void *endpoint, void *ep, ucs_status status)
{
	struct endpoint *e = endpoint;
	(void)ep;
	e->broken = status;
	e->owner->broken = true;
}

// endpoint_to returns that of a peer, which is made where there is none of use.
static struct endpoint *endpoint_to(struct ucx *u, const uint8_t *address, size_t bytes, ucs_status *status)
{
	for (struct endpoint *e = u->endpoints; e; e = e->next)
		if (e->ep && !e->broken && e->bytes == bytes && !memcmp(e->address, address, bytes))
			return e;
	struct endpoint *e = calloc(1, sizeof *e + bytes);
	if (!e)
		return NULL;
	e->owner = u;
	e->bytes = bytes;
	memcpy(e->address, address, bytes);
	struct ucp_ep_params params = {
		.field_mask = UCP_EP_PARAM_REMOTE_ADDRESS | UCP_EP_PARAM_ERR_MODE | UCP_EP_PARAM_ERR_HANDLER,
		.address = e->address,
		.err_mode = UCP_ERR_MODE_PEER,
		.err_handler = {failed, e},
	};
	if ((*status = ucp.ucp_ep_create(u->worker, &params, &e->ep))) {
		free(e);
		return NULL;
	}
	e->next = u->endpoints;
	return u->endpoints = e;
}

static int join(struct loop *l, struct link *link, const sar_transport_peer *peer, char *why)
{
	struct ucx *u = l->state;
	uint32_t key;
	if (peer->address_bytes <= sizeof key) {
		snprintf(why, SAR_TRANSPORT_TEXT, "the address of rank %d is not one of UCX", peer->rank);
		return -1;
	}
	memcpy(&key, peer->address, sizeof key);
	ucs_status status = UCS_OK;
	struct endpoint *e = endpoint_to(u, peer->address + sizeof key, peer->address_bytes - sizeof key, &status);
	if (!e) {
		snprintf(why, SAR_TRANSPORT_TEXT, "UCX cannot reach rank %d: %s. UCX_TLS and UCX_NET_DEVICES say what it may use",
			peer->rank, status ? ucp.ucs_status_string(status) : "out of memory");
		return -1;
	}
	link->to = e;
	link->next = e->links;
	e->links = link;
	link->send_tag = (uint64_t)key << 32 | peer->send_tag;
	link->receive_tag = (uint64_t)u->key << 32 | peer->receive_tag;
	return 0;
}

static void leave(struct loop *l, struct link *link)
{
	struct endpoint *e = link->to;
	(void)l;
	for (struct link **at = &e->links; *at; at = &(*at)->next) {
		if (*at == link) {
			*at = link->next;
			return;
		}
	}
}

// over completes a request with the status that UCX gives it.
static void over(struct loop *l, struct request *r, ucs_status status)
{
	struct link *link = r->link;
	struct endpoint *e = link->to;
	if (status == UCS_OK)
		finish(l, r, SAR_OK, NULL);
	else if (link->leaving)
		finish(l, r, SAR_ERR_CLOSED, "the link is disconnected");
	else if (status == UCS_ERR_MESSAGE_TRUNCATED)
		finish(l, r, SAR_ERR_SCHEDULE, "UCX: a message of another size than the one that is due");
	else
		finish(l, r, SAR_ERR_PEER_LOST, ucp.ucs_status_string(e->broken ? e->broken : status));
}

static ucs_status of_size(const struct request *r, ucs_status status, size_t bytes)
{
	return status == UCS_OK && bytes != r->bytes ? UCS_ERR_MESSAGE_TRUNCATED : status;
}

static void sent(void *handle, ucs_status status, void *request)
{
	struct request *r = request;
	ucp.ucp_request_free(handle);
	over(r->link->worker->loop, r, status);
}

static void received(void *handle, ucs_status status, const struct ucp_tag_info *info, void *request)
{
	struct request *r = request;
	status = of_size(r, status, info->length);
	ucp.ucp_request_free(handle);
	over(r->link->worker->loop, r, status);
}

static void post(struct loop *l, struct request *r)
{
	struct ucx *u = l->state;
	struct link *link = r->link;
	struct endpoint *e = link->to;
	struct ucp_tag_info info = {.length = r->bytes};
	struct ucp_request_param param = {.op_attr_mask = UCP_OP_CALLBACK | UCP_OP_USER_DATA, .user_data = r};
	if (r->memory) {
		param.op_attr_mask |= UCP_OP_MEMH;
		param.memh = r->memory;
	}
	void *handle;
	if (e->broken) {
		over(l, r, e->broken);
		return;
	}
	if (r->sends) {
		param.cb.send = sent;
		handle = ucp.ucp_tag_send_nbx(e->ep, r->buffer, r->bytes, link->send_tag, &param);
	} else {
		param.op_attr_mask |= UCP_OP_RECV_INFO;
		param.tag_info = &info;
		param.cb.recv = received;
		handle = ucp.ucp_tag_recv_nbx(u->worker, r->buffer, r->bytes, link->receive_tag, UINT64_MAX, &param);
	}
	if (ucs_is_error(handle))
		over(l, r, ucs_error_of(handle));
	else if (!handle)
		over(l, r, of_size(r, UCS_OK, info.length));
	else
		r->handle = handle;
}

static void cancel(struct loop *l, struct request *r)
{
	struct ucx *u = l->state;
	ucp.ucp_request_cancel(u->worker, r->handle);
}

// revoke breaks the endpoint, since nothing less takes back what is sent, or is being received.
static void revoke(struct loop *l, struct link *link)
{
	struct ucx *u = l->state;
	struct endpoint *e = link->to;
	(void)link;
	if (!e->broken) {
		e->broken = UCS_ERR_CANCELED;
		u->broken = true;
	}
}

const struct carrier ucx_carrier = {
	.driver = {.name = "ucx", .open = begin, .close = stop, .progress = progress, .arm = arm},
	.start_ns = INT64_C(60000000000),
	.address = address,
	.connect = join,
	.detach = leave,
	.start = post,
	.cancel = cancel,
	.revoke = revoke,
};

struct mapping {
	struct call call;
	struct ucp_mem_map_params params;
	void *memory;
	ucs_status status;
};

static void run_map(struct loop *l, struct task *t)
{
	struct mapping *m = (struct mapping *)t;
	struct ucx *u = l->state;
	m->status = m->memory ? ucp.ucp_mem_unmap(u->context, m->memory) : ucp.ucp_mem_map(u->context, &m->params, &m->memory);
	loop_called(&m->call);
}

sar_status ucx_register(void *worker, void *base, size_t bytes, void **memory, char *text)
{
	struct worker *w = worker;
	struct mapping m = {.call.task.run = run_map,
		.params = {.field_mask = UCP_MEM_MAP_ADDRESS | UCP_MEM_MAP_LENGTH, .address = base, .length = bytes}};
	loop_call(w->loop, &m.call);
	if (m.status) {
		snprintf(text, SAR_TRANSPORT_TEXT,
			"UCX cannot register %zu bytes: %s. Where that is for want of memory that may be locked: ulimit -l",
			bytes, ucp.ucs_status_string(m.status));
		return SAR_ERR_IO;
	}
	*memory = m.memory;
	return SAR_OK;
}

void ucx_unregister(void *worker, void *memory)
{
	struct worker *w = worker;
	struct mapping m = {.call.task.run = run_map, .memory = memory};
	loop_call(w->loop, &m.call);
}
