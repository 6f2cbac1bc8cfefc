/*
 * The frames between libden, keeper and init: one versioned header, one codec.
 *
 * A frame is a 12-byte header and a payload. The payload of a control frame is a list of fields
 * (tag u16, length u32, bytes); that of a data frame is raw bytes. Everything is little-endian.
 * A decoder refuses what it does not know: an unknown tag or type, a length beyond the frame, a
 * string with a NUL byte. Nothing received is ever used before it went through here.
 *
 * A channel is one exec (or one attachment to an exec) on one connection. Whoever opens it chooses
 * a number not in use; 0 is the box itself. Between keeper and init the keeper chooses.
 *
 *   opener                              other side
 *     EXEC or ATTACH   ->
 *                      <-               STARTED (pid)      or  FAIL, which closes the channel
 *                      <-               OUT, ERR           at most the credit that was given
 *     CREDIT           ->                                  more may be sent
 *     IN, IN_EOF       ->
 *                      <-               IN_CREDIT          more may be sent
 *     SIGNAL, RESIZE   ->
 *                      <-               EXIT               after the last OUT and ERR; closes it
 *     DETACH           ->                                  closes it early; the program runs on
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "buf.h"
#include "err.h"

#define WIRE_VERSION 1
#define WIRE_HEADER 12
#define WIRE_MAX_PAYLOAD (1U << 20)  /* control frames: argv and env travel in one */
#define WIRE_MAX_DATA (64U << 10)    /* data frames */
#define WIRE_WINDOW (256U << 10)     /* credit for stdin that a channel starts with, each way */

enum wire_type {
	/* answers, on the channel of the question */
	WM_OK = 1,	/* fields depend on the question */
	WM_FAIL,		/* F_CODE, F_SYS, F_MSG */
	/* the box: channel 0 (requests are answered in order) */
	WM_HELLO,	/* first frame each way on keeper-init: F_PROTO; init adds F_RECORD per exec */
	WM_CREATE,	/* box spec */
	WM_START,
	WM_STOP,		/* F_GRACE_MS */
	WM_PAUSE,	/* F_FLAGS: enum save_flags */
	WM_RESUME,
	WM_DELETE,	/* F_FLAGS bit 0: force */
	WM_INFO,		/* -> F_RECORD: box info */
	WM_STATS,	/* -> stats fields */
	WM_PS,		/* -> F_RECORD per exec, F_RECORD2 per process */
	WM_LIST,		/* clerk: -> F_RECORD per box */
	WM_GC,		/* clerk: -> F_RECORD per thing removed */
	WM_DOCTOR,	/* clerk: -> F_RECORD per finding */
	WM_WAIT,		/* answered when the box is no longer running */
	/* channels */
	WM_EXEC,		/* exec spec; keeper-init: with SCM_RIGHTS, see keeper/exec.c */
	WM_ATTACH,	/* F_PID or F_TAG or F_EXEC, F_OFF_OUT, F_OFF_ERR, F_CREDIT, F_FLAGS: enum attach_flags;
			   keeper-init: F_SIZE: stdin that was passed on and not credited */
	WM_STARTED,	/* F_PID, F_EXEC, F_OFF_OUT, F_OFF_ERR: first offset that follows */
	WM_OUT,		/* data */
	WM_ERR,		/* data */
	WM_CREDIT,	/* F_CREDIT */
	WM_IN,		/* data */
	WM_IN_EOF,
	WM_IN_CREDIT,	/* F_CREDIT */
	WM_RESIZE,	/* F_ROWS, F_COLS */
	WM_SIGNAL,	/* F_SIG, F_SCOPE; channel 0: also F_PID or F_TAG or F_EXEC */
	WM_EXIT,		/* exec result; init to keeper on channel 0: F_RECORD exec info */
	WM_DETACH,
	WM_PROGRESS,	/* F_MSG, on channel 0 while a request takes long */
	WM_FORGET,	/* keeper-init: F_EXEC: drop what is kept of an ended exec */
	/* history: channel 0. Those marked S have a stream: a socket travels with the request, and what
	 * comes back on it is frames (WM_OUT with data, WM_RECORD with fields), then WM_OK or WM_FAIL. */
	WM_CHECKPOINT,	/* F_MSG, F_FLAGS: enum save_flags -> F_NUMBER */
	WM_LOG,		/* -> F_RECORD per checkpoint (WM_RECORD frames) */
	WM_TAG,		/* F_REF, F_TAG, F_FLAGS bit 0: remove */
	WM_ROLLBACK,	/* F_REF, or F_COUNT turns, F_FLAGS: enum rollback_flags -> F_NUMBER: what was present before */
	WM_PRUNE,	/* F_TIMEOUT_MS, F_FLAGS bit 0: all -> F_COUNT */
	WM_FORK_POINT,	/* F_REF, F_FLAGS: enum save_flags -> F_FROM "ID@N" for a create; it cannot be thinned for a minute */
	WM_DIFF,		/* S: F_REF, F_REF2, F_FLAGS: enum diff_form */
	WM_MERGE,	/* S: F_FROM "ID@N", F_RULE and F_CHOICE pairs -> records: conflicts, counts; a layer */
	WM_MERGE_END,	/* F_FLAGS: enum merge_end -> F_NUMBER of one that is done */
	WM_RECORD,	/* a part of an answer */
	/* templates; the clerk's, but for COMMIT */
	WM_COMMIT,	/* S: F_REF, template options -> F_ID */
	WM_TEMPLATES,	/* -> F_RECORD per template (WM_RECORD frames) */
	WM_TEMPLATE_GET, /* F_REF -> the same, one */
	WM_TEMPLATE_TAG, /* F_REF, F_NAME */
	WM_TEMPLATE_REMOVE, /* F_NAME, F_FLAGS bit 0: force, bit 1: of one with programs those alone */
	WM_TEMPLATE_VERIFY, /* S: F_REF */
	WM_TEMPLATE_TAR, /* S: F_REF, F_COUNT: one more than the layer (absent: all) */
	WM_TEMPLATE_STACK, /* F_DIFF_ID each, template options -> F_ID */
	WM_POOL,		/* F_KIND, F_SIZE -> F_KIND, F_FLAGS, sizes */
	/* the network */
	WM_POLICY_GET,	/* -> F_POLICY, F_POLICY_NAME, F_GENERATION */
	WM_POLICY_SET,	/* F_POLICY or F_POLICY_NAME, F_GENERATION: what it must be -> F_GENERATION, F_COUNT: connections ended */
	WM_POLICY_STORED, /* clerk: F_WHAT save (F_NAME, F_POLICY), get, remove (F_NAME), list -> F_RECORD each */
	WM_JOURNAL,	/* F_KIND: a word, F_COUNT: the last so many -> WM_RECORD frames with F_MSG: a JSON line */
	WM_DIAL,		/* -> F_FLAGS; descriptors: TCP sockets of the box's namespace, not connected */
	WM_PORT,		/* F_PORT, F_FLAGS bit 0: close; F_NUMBER: port outside (0: any) -> F_RECORD each */
	/* keeper and gate, src/gate/control.h */
	WM_GATE_SETUP,	/* F_CONFIG, F_FLAGS: enum gate_fds -> F_COUNT: connections ended */
	WM_GATE_RECORD,	/* gate: what to write down */
	WM_GATE_TOKEN,	/* gate: F_NUMBER, F_NAME: audience, F_RULE: algorithm; back: F_NUMBER, F_MSG or F_REASON */
	WM_GATE_SOCKETS, /* gate: wants; back: one descriptor, as from the plumber */
	WM_GATE_PORT,	/* F_PORT in the box, one descriptor that listens outside; without one: close */
	/* secrets and identity */
	WM_VAULT,	/* clerk: F_CONFIG: a request to den-vault (JSON) -> F_CONFIG; F_RECORD per secret; F_MSG issuer */
	WM_TOKEN,	/* F_NAME: audience, F_RULE: algorithm (absent: EdDSA) -> F_MSG: JWT */
	/* for servers */
	WM_GUEST,	/* not answered: from here on this client may ask for what a stranger may, keeper/guest.c */
	WM_LEASE,	/* F_EXPIRES_MS, F_ON_EXPIRE, F_IDLE_MS, F_ON_IDLE (absent: as it is), F_FLAGS bit 0: extend */
	WM_LABEL,	/* F_LABEL each: instead of those it has */
	WM_RESOLVE,	/* clerk: F_REF: name or prefix of an id -> F_ID */
	/* programs on disk: keeper and init, init/park.c */
	WM_PARK,		/* init answers the same and lets go of all that is from outside; F_PATH*: files whose times it
				 * tells the host first */
	WM_WAKE,		/* F_FLAGS: enum wake_fds, which come with it; F_MEMORY: the limit */
	WM_DISOWN,	/* F_EXEC: it no longer ends with its client */
	/* the same, for clients. Those that save answer F_NUMBER, F_SIZE, F_FROZEN_US, F_UNSAVED each */
	WM_HIBERNATE,
	WM_BAKE,		/* clerk: F_NAME: a template, F_FROM "ID@N", F_FLAGS: enum bake_flags -> F_ID; F_RECORD: the seed it had */
	/* ready boxes (docs/decisions/0015-ready.md) */
	WM_READY,	/* clerk: box spec -> F_ID: built, and nobody's until it is claimed */
	WM_CLAIM,	/* box spec -> F_ID: the ready box becomes that box */
	WM_READY_LIST,	/* clerk: -> F_RECORD per ready box: box info */
	WM_DISK_USE,	/* clerk: F_OWNER -> F_DISK, F_IMAGE_BYTES, F_FILE_BYTES: keeper/quota.h */
	WM_LENT,	/* from a keeper, before it answers WM_FORK_POINT with SAVE_LEND: F_NUMBER. The fork is to be made now, and
			 * the answer comes when it has its memory. To a keeper, not answered: there will be no fork */
	WM_EXPECT,	/* clerk, not answered: F_ID. It is about to be asked for a fork of that box, with WM_CREATE */
	WM_TYPES,
};

/* What comes with WM_WAKE, in this order. */
enum wake_fds { WAKE_LISTEN = 1 << 0, WAKE_MEMINFO = 1 << 1, WAKE_MEMUSE = 1 << 2 };
/* F_FLAGS of WM_CHECKPOINT, WM_FORK_POINT, and of WM_PAUSE, which then goes to disk. */
enum save_flags { SAVE_FULL = 1 << 0, SAVE_LEND = 1 << 1 /* for one fork, at once: keeper/lend.c */ };
/* F_FLAGS of WM_BAKE: instead of one of that name; an image of that name stays, as the same without programs. */
enum commit_flags { COMMIT_UNPACKED = 1 << 0, COMMIT_BESIDE = 1 << 1 }; /* F_FLAGS of template options */
enum bake_flags { BAKE_REPLACE = 1 << 0, BAKE_BESIDE = 1 << 1, BAKE_FLAGS = 3 };
/* F_FLAGS of WM_ROLLBACK. */
enum rollback_flags { ROLLBACK_DISK = 1 << 0 /* files alone */ };

/* One namespace of fields for all messages, so that one number means one thing everywhere. The
 * numbers are stored in the database inside box specs: append only. */
enum wire_field {
	F_CODE = 1, F_SYS, F_MSG,
	F_PROTO, F_FLAGS, F_RECORD, F_RECORD2,
	/* box spec and info */
	F_ID, F_NAME, F_TEMPLATE, F_WALL, F_NET, F_HOSTNAME, F_USER, F_CWD, F_ENV,
	F_MOUNT_HOST, F_MOUNT_BOX, F_MOUNT_RO,
	F_CPU_MILLI, F_MEMORY, F_PIDS, F_DISK, F_NOFILE, F_MAX_RUNTIME_MS,
	F_STATE, F_CREATED_MS, F_STARTED_MS, F_STOPPED_MS, F_INIT_PID, F_KEEPER_PID, F_REASON, F_DETAIL, F_ID_BASE,
	/* exec spec, info and result */
	F_ARGV, F_TAG, F_ROWS, F_COLS, F_TIMEOUT_MS, F_CPU_MS, F_GRACE_MS, F_MAX_OUTPUT, F_KEEP,
	F_EXEC, F_PID, F_OFF_OUT, F_OFF_ERR, F_CREDIT, F_SIG, F_SCOPE,
	F_EXITED, F_STATUS, F_ENDED_MS, F_OOM_KILLS, F_LOST,
	/* stats */
	F_CPU_USEC, F_CPU_THROTTLED_USEC, F_MEM_BYTES, F_MEM_PEAK, F_MEM_LIMIT, F_PIDS_NOW, F_PIDS_MAX,
	F_DISK_BYTES, F_DISK_LIMIT, F_NET_RX, F_NET_TX, F_IO_READ, F_IO_WRITE,
	/* file entries, see fsop.h */
	F_PATH, F_TYPE, F_MODE, F_UID, F_GID, F_SIZE, F_MTIME_NS, F_TARGET, F_EVENT, F_GROUP, F_INO, F_NLINK,
	F_PPID, F_COMM, F_BOOT_ID,
	/* history and templates */
	F_HISTORY, F_FROM, F_NUMBER, F_PARENT, F_TURN, F_KIND, F_ORIGIN, F_REF, F_REF2, F_HEAD,
	F_ENTRYPOINT, F_CONFIG, F_LAYER, F_DIFF_ID, F_WHAT, F_RULE, F_CHOICE, F_COUNT, F_NONCE,
	/* the network */
	F_POLICY, F_POLICY_NAME, F_GENERATION, F_HOST, F_ADDR, F_PORT, F_BYTES_IN, F_BYTES_OUT, F_DURATION_MS,
	F_PUBLISH,
	/* for servers */
	F_OWNER, F_LABEL, F_EXPIRES_MS, F_ON_EXPIRE, F_IDLE_MS, F_ON_IDLE, F_ACTIVE_MS,
	F_REAL, F_LINK_MODE, F_XATTR,
	/* programs on disk */
	F_FROZEN_US, F_UNSAVED, F_ON_DISK, F_RESTORES, F_IMAGES, F_FULL, F_MARK,
	F_IMAGES_DISK, F_IMAGES_SHARED,
	/* what counts against a quota; the image beside a template with programs */
	F_QUOTA, F_IMAGE_BYTES, F_FILE_BYTES, F_BESIDE,
	WIRE_FIELDS,
};

enum attach_flags {
	ATTACH_LIVE = 1 << 0,  /* never slows the program down: what it is too slow for is lost to it */
	ATTACH_OTHER = 1 << 1, /* not the one who started the exec */
};
/* A live follower that lost something gets STARTED again, with the offsets that follow. It costs so much credit,
 * like output. */
#define WIRE_GAP_COST 128U

/* Forms of a diff. */
enum diff_form { DIFF_RECORDS, DIFF_TEXT, DIFF_TAR };
/* How a merge ended for its client: nothing of it reached the box, or all, or who knows what. */
enum merge_end { MERGE_END_BROKEN, MERGE_END_DONE, MERGE_END_UNTOUCHED };

struct wire_frame {
	uint8_t type;
	uint32_t chan;
	const char *p; /* payload */
	uint32_t len;
};

/* Appends header and payload. */
void wire_frame_put(struct buf *b, uint8_t type, uint32_t chan, const void *p, uint32_t len);
/* 1: *ret is the frame at p, which takes *used bytes; 0: more bytes are needed; -1: not ours. */
int wire_frame_get(
	const char *p, size_t n, struct wire_frame *ret, size_t *used, struct den_err *err);

void wire_put_bytes(struct buf *b, enum wire_field tag, const void *p, size_t n);
void wire_put_str(struct buf *b, enum wire_field tag, const char *s); /* NULL: nothing is put */
void wire_put_u64(struct buf *b, enum wire_field tag, uint64_t v);
void wire_put_err(struct buf *b, const struct den_err *e);

struct wire_reader {
	const char *p, *end;
};
struct wire_value {
	uint16_t tag;
	uint32_t len;
	const char *p;
};
static inline struct wire_reader wire_reader(const void *p, size_t n)
{
	const char *s = n ? p : ""; /* an empty message may have no bytes at all */

	return (struct wire_reader){ s, s + n };
}
/* 1: *v is the next field; 0: the end; -1: malformed. */
int wire_next(struct wire_reader *r, struct wire_value *v, struct den_err *err);
int wire_u64(const struct wire_value *v, uint64_t max, uint64_t *ret, struct den_err *err);
/* A copy; refuses NUL inside and more than max bytes. */
int wire_str(const struct wire_value *v, size_t max, char **ret, struct den_err *err);
int wire_get_err(const char *p, size_t n, struct den_err *ret); /* always -1, *ret set */
/* The number in the last field of this tag; the others are ignored. */
uint64_t wire_find_u64(const void *p, size_t n, uint16_t tag, uint64_t otherwise);
/* -1, for a field that the message does not have */
int wire_unexpected(const struct wire_value *v, struct den_err *err);
