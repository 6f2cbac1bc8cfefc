#include "advice.h"

#include <stddef.h>
#include <string.h>

#include "mem.h"

#define OPEN "'den "
#define B "/v1/boxes/{box}"

/* By the first words of the command; the first that fits. "{box}" is the request's box, "{it}" the next word of the
 * command. NULL: as if it were not here. */
static const struct {
	const char *command, *v1, *e2b;
} table[] = {
	{ "start", "POST " B "/start", "Sandbox.connect()" },
	{ "resume", "POST " B "/resume", "Sandbox.connect()" },
	{ "pause", "POST " B "/pause", "pause()" },
	{ "stop", "POST " B "/stop", "pause()" },
	{ "hibernate", "POST " B "/hibernate", "pause({ keepMemory: false })" },
	{ "exec", "POST " B "/execs", "commands.run()" },
	{ "ps", "GET " B "/execs", "commands.list()" },
	{ "ls", "GET /v1/boxes", "Sandbox.list()" },
	{ "create", "POST /v1/boxes", "Sandbox.create()" },
	{ "rm", "DELETE /v1/boxes/{it}", "Sandbox.kill()" },
	{ "lease", "POST " B "/lease", "setTimeout()" },
	{ "inspect", "GET " B, "getInfo()" },
	{ "log", "GET " B "/checkpoints", NULL },
	{ "checkpoint", "POST " B "/checkpoints", "createSnapshot()" },
	{ "rollback", "POST " B "/rollback", NULL },
	{ "fork", "POST " B "/fork", "fork()" },
	{ "prune", "POST " B "/prune", NULL },
	{ "policy ls", "GET /v1/policies", NULL },
	{ "policy set", "PUT " B "/policy", "updateNetwork()" },
	{ "policy allow", "POST " B "/policy/allow", "updateNetwork()" },
	{ "secret set", "PUT /v1/secrets/{it}", "POST /secrets" },
	{ "secret ls", "GET /v1/secrets", "GET /secrets" },
	{ "template ls", "GET /v1/templates", "GET /templates" },
	{ "denials", "GET " B "/journal?kind=denial", NULL },
};

/* Does the command begin with these words? Then what follows them. */
static const char *after(const char *command, size_t n, const char *words)
{
	size_t len = strlen(words);

	if (n < len || strncmp(command, words, len) || (n > len && command[len] != ' '))
		return NULL;
	return command + len + (n > len);
}

static void fill_in(const char *text, const char *box, const char *rest, const char *end, struct buf *out)
{
	size_t it = (size_t)(end - rest), word = 0;

	while (word < it && rest[word] != ' ')
		word++;
	while (*text) {
		if (!strncmp(text, "{box}", 5) && box && *box) {
			buf_addstr(out, box);
			text += 5;
		} else if (!strncmp(text, "{it}", 4)) {
			if (word && *rest != '-')
				buf_add(out, rest, word);
			else
				buf_addstr(out, box && *box ? box : "{box}");
			text += 4;
		} else {
			buf_add(out, text++, 1);
		}
	}
}

static void command_put(enum advice dialect, const char *command, const char *end, const char *box, struct buf *out)
{
	for (size_t i = 0; i < ARRAY_SIZE(table); i++) {
		const char *text = dialect == ADVICE_V1 ? table[i].v1 : table[i].e2b;
		const char *rest = text ? after(command, (size_t)(end - command), table[i].command) : NULL;

		if (rest) {
			fill_in(text, box, rest, end, out);
			return;
		}
	}
	buf_addstr(out, OPEN);
	buf_add(out, command, (size_t)(end - command));
	buf_addstr(out, "' on the server's host");
}

void advice_text(enum advice dialect, const char *msg, const char *box, struct buf *out)
{
	for (;;) {
		const char *at = strstr(msg, OPEN), *end = at ? strchr(at + 1, '\'') : NULL;

		if (!end) {
			buf_addstr(out, msg);
			return;
		}
		buf_add(out, msg, (size_t)(at - msg));
		command_put(dialect, at + strlen(OPEN), end, box, out);
		msg = end + 1;
	}
}
