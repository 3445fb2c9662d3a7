// What is used of UCX's C interface, as it is since version 1.13. The library is opened at run
// time, so nothing of UCX is needed to build. UCX lets its structures grow at their ends and
// reads only the fields that a mask names, so these stay valid with later versions 1.x.
#ifndef SAR_UCP_ABI_H
#define SAR_UCP_ABI_H

#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <sys/socket.h>

enum { UCP_MAJOR = 1, UCP_LEAST_MINOR = 13 };

typedef signed char ucs_status; // what functions return, and pointers below encode
enum {
	UCS_OK = 0,
	UCS_INPROGRESS = 1,
	UCS_ERR_MESSAGE_TRUNCATED = -9,
	UCS_ERR_BUSY = -15,
	UCS_ERR_CANCELED = -16,
	UCS_ERR_LAST = -100,
};

// A function that starts something returns NULL when it is done already, an error, or a request.
static inline int ucs_is_error(const void *p) { return (uintptr_t)p >= (uintptr_t)UCS_ERR_LAST; }
static inline int ucs_error_of(const void *p) { return (int)(intptr_t)p; }

enum { UCP_FEATURE_TAG = 1 << 0, UCP_FEATURE_WAKEUP = 1 << 4 };
enum { UCP_PARAM_FEATURES = 1 << 0, UCP_PARAM_ESTIMATED_EPS = 1 << 6, UCP_PARAM_NAME = 1 << 8 };

struct ucp_params {
	uint64_t field_mask, features;
	size_t request_size;
	void (*request_init)(void *), (*request_cleanup)(void *);
	uint64_t tag_sender_mask;
	int mt_workers_shared;
	size_t estimated_num_eps, estimated_num_ppn;
	const char *name;
};

enum { UCP_WORKER_PARAM_THREAD_MODE = 1 << 0 };
enum { UCS_THREAD_MODE_SINGLE = 0 };

struct ucp_worker_params {
	uint64_t field_mask;
	int thread_mode;
	unsigned long cpu_mask[1024 / (8 * sizeof(long))];
	unsigned events;
	void *user_data;
	int event_fd;
	uint64_t flags;
	const char *name;
	size_t am_alignment;
	uint64_t client_id;
};

typedef void (*ucp_error_handler)(void *arg, void *ep, ucs_status status);

struct ucs_sock_addr {
	const struct sockaddr *addr;
	socklen_t addrlen;
};

enum { UCP_EP_PARAM_REMOTE_ADDRESS = 1 << 0, UCP_EP_PARAM_ERR_MODE = 1 << 1, UCP_EP_PARAM_ERR_HANDLER = 1 << 2 };
enum { UCP_ERR_MODE_PEER = 1 };

struct ucp_ep_params {
	uint64_t field_mask;
	const void *address;
	int err_mode;
	struct {
		ucp_error_handler cb;
		void *arg;
	} err_handler;
	void *user_data;
	unsigned flags;
	struct ucs_sock_addr sockaddr;
	void *conn_request;
	const char *name;
	struct ucs_sock_addr local_sockaddr;
};

struct ucp_tag_info {
	uint64_t sender_tag;
	size_t length;
};

typedef void (*ucp_sent)(void *request, ucs_status status, void *user_data);
typedef void (*ucp_received)(void *request, ucs_status status, const struct ucp_tag_info *info, void *user_data);

enum {
	UCP_OP_CALLBACK = 1 << 1,
	UCP_OP_USER_DATA = 1 << 2,
	UCP_OP_FLAGS = 1 << 4,
	UCP_OP_RECV_INFO = 1 << 7,
	UCP_OP_MEMH = 1 << 8,
};
enum { UCP_EP_CLOSE_FORCE = 1 << 0 };

struct ucp_request_param {
	uint32_t op_attr_mask, flags;
	void *request;
	union {
		ucp_sent send;
		ucp_received recv;
	} cb;
	uint64_t datatype;
	void *user_data, *reply_buffer;
	int memory_type;
	struct ucp_tag_info *tag_info;
	void *memh;
	uint64_t remote_datatype; // this and the rest: later than 1.13
	const void *remote;
	size_t remote_count;
};

enum { UCP_MEM_MAP_ADDRESS = 1 << 0, UCP_MEM_MAP_LENGTH = 1 << 1 };

struct ucp_mem_map_params {
	uint64_t field_mask;
	void *address;
	size_t length;
	unsigned flags, prot;
	int memory_type;
	const void *exported_memh_buffer;
};

// UCP_FUNCTIONS(F) is F(result, name, (parameters)) for each function that is used.
#define UCP_FUNCTIONS(F)                                                                                              \
	F(void, ucp_get_version, (unsigned *major, unsigned *minor, unsigned *release))                                    \
	F(const char *, ucs_status_string, (ucs_status))                                                                   \
	F(ucs_status, ucp_config_read, (const char *prefix, const char *file, void **config))                              \
	F(ucs_status, ucp_config_modify, (void *config, const char *name, const char *value))                              \
	F(void, ucp_config_release, (void *config))                                                                        \
	F(ucs_status, ucp_init_version, \
		(unsigned major, unsigned minor, const struct ucp_params *, const void *config, void **context)) \
	F(void, ucp_cleanup, (void *context))                                                                              \
	F(void, ucp_context_print_info, (void *context, FILE *))                                                           \
	F(ucs_status, ucp_worker_create, (void *context, const struct ucp_worker_params *, void **worker))                 \
	F(void, ucp_worker_destroy, (void *worker))                                                                        \
	F(ucs_status, ucp_worker_get_address, (void *worker, void **address, size_t *bytes))                               \
	F(void, ucp_worker_release_address, (void *worker, void *address))                                                 \
	F(unsigned, ucp_worker_progress, (void *worker))                                                                   \
	F(ucs_status, ucp_worker_get_efd, (void *worker, int *fd))                                                         \
	F(ucs_status, ucp_worker_arm, (void *worker))                                                                      \
	F(ucs_status, ucp_ep_create, (void *worker, const struct ucp_ep_params *, void **ep))                              \
	F(void *, ucp_ep_close_nbx, (void *ep, const struct ucp_request_param *))                                          \
	F(void, ucp_ep_print_info, (void *ep, FILE *))                                                                     \
	F(void *, ucp_tag_send_nbx, \
		(void *ep, const void *buffer, size_t bytes, uint64_t tag, const struct ucp_request_param *)) \
	F(void *, ucp_tag_recv_nbx, \
		(void *worker, void *buffer, size_t bytes, uint64_t tag, uint64_t mask, const struct ucp_request_param *)) \
	F(void, ucp_request_cancel, (void *worker, void *request))                                                         \
	F(ucs_status, ucp_request_check_status, (void *request))                                                           \
	F(void, ucp_request_free, (void *request))                                                                         \
	F(ucs_status, ucp_mem_map, (void *context, const struct ucp_mem_map_params *, void **memory))                      \
	F(ucs_status, ucp_mem_unmap, (void *context, void *memory))

#endif
