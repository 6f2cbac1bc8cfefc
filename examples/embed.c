/*
 * A program that gives a piece of work a box of its own: makes the box, puts a file in, runs a
 * program with its output streamed to callbacks, copies a file out, deletes the box.
 *
 *   cc embed.c $(pkg-config --cflags --libs den) -o embed && ./embed
 *
 * From a build tree: DEN_EXE=build/den build/examples/embed
 */
#include <stdio.h>
#include <string.h>

#include <den.h>

/* What is to be fed to a file of the box. */
struct text {
	const char *p;
	size_t left;
};

static ssize_t text_source(void *buf, size_t cap, void *user, struct den_err *err)
{
	struct text *t = user;
	size_t n = t->left < cap ? t->left : cap;

	(void)err;
	memcpy(buf, t->p, n);
	t->p += n;
	t->left -= n;
	return (ssize_t)n; /* 0 is the end */
}

static int file_sink(const void *data, size_t n, void *user, struct den_err *err)
{
	if (fwrite(data, 1, n, user) == n)
		return 0;
	*err = (struct den_err){ .code = DEN_INTERNAL, .msg = "write" };
	return -1; /* stops the transfer */
}

/* Called from den_exec_wait(). What comes here was made inside the box: any bytes. */
static void on_output(struct den_exec *e, int stream, const void *data, size_t n, void *user)
{
	(void)e, (void)user;
	fwrite(data, 1, n, stream == 1 ? stdout : stderr);
}

static const struct den_exec_ops ops = { .output = on_output };

static int write_program(struct den_box *box, struct den_err *err)
{
	static const char program[] = "#!/bin/sh\n"
				      "echo \"working as $(id -un) on $(hostname)\"\n"
				      "echo \"this is the other stream\" >&2\n"
				      "seq 1 100 | awk '{ s += $1 } END { print s }' >/root/result\n";
	struct den_file_opt opt = { .size = sizeof(opt), .mode = "0755", .atomic = true };
	struct text t = { program, sizeof(program) - 1 };

	return den_file_write(box, "/root/work", &opt, text_source, &t, err);
}

static int run_program(struct den_box *box, struct den_err *err)
{
	const char *argv[] = { "/root/work", NULL };
	struct den_exec_opt opt = { .size = sizeof(opt), .argv = argv, .timeout_ms = 10000,
		.max_output = 1 << 20 };
	struct den_exec_result result;
	struct den_exec *e;
	int r;

	if (den_exec_start(box, &opt, &ops, NULL, &e, err) < 0)
		return -1;
	r = den_exec_wait(e, &result, err);
	den_exec_unref(e);
	if (r < 0)
		return -1;
	printf("ended with %s %d%s%s\n", result.exited ? "status" : "signal", result.status,
		*result.reason ? ", by the limit " : "", result.reason);
	return 0;
}

static int work(struct den_box *box, struct den_err *err)
{
	if (write_program(box, err) < 0 || run_program(box, err) < 0)
		return -1;
	printf("result: ");
	fflush(stdout);
	return den_file_read(box, "/root/result", NULL, file_sink, stdout, err);
}

int main(void)
{
	/* ephemeral: should this program die, the box goes too */
	struct den_box_spec spec = { .size = sizeof(spec), .hostname = "example", .pids = 64,
		.ephemeral = true };
	struct den_box *box = NULL;
	struct den *d = NULL;
	struct den_err err;
	int r = -1;

	if (den_open(NULL, &d, &err) == 0 && den_box_create(d, &spec, &box, &err) == 0) {
		r = work(box, &err);
		if (den_box_delete(box, true, r < 0 ? &(struct den_err){ 0 } : &err) < 0)
			r = -1;
	}
	if (r < 0)
		fprintf(stderr, "embed: %s: %s\n", den_code_str(err.code), err.msg);
	den_box_close(box);
	den_close(d);
	return r < 0 ? 1 : 0;
}
