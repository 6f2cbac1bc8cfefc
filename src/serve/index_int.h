/* The index, between its files. Whoever touches what is declared here holds index_lock. */
#pragma once

#include <pthread.h>

#include "boxes.h"
#include "index.h"

#define INDEX_BUCKETS 1024

enum index_state { RUNNING, PAUSED, STOPPED };

struct entry {
	struct entry *next;
	char id[21], org[33], key[17];
	char *name;
	enum index_state state;
	struct index_use use;
	struct box_traffic traffic;
	int64_t expires_ms, seen; /* index_clock() of what told us of it */
	bool leased;		  /* it has a deadline or an idle time */
	int64_t kept;		  /* index_clock() when its keeper was last seen to be there; 0: never */
};

extern pthread_mutex_t index_lock;
extern struct entry *index_table[INDEX_BUCKETS];

struct entry *entry_find(const char *id);
struct entry *entry_add(const char *id); /* the one that is there, or a new one */
void entry_bury(const char *id);
void entry_name(struct entry *e, const char *name);
void entry_labels(struct entry *e, const char *const *labels);
int index_read_all(struct den *d, struct den_err *err); /* without the lock */
