/* Images whose folders are damaged or forged. */
#include <fcntl.h>
#include <sys/stat.h>

#include "buf.h"
#include "fd.h"
#include "image.h"
#include "kit_image.h"
#include "mem.h"
#include "sha256.h"
#include "test.h"
#include "wire.h"

static char *part_get(const char *id, const char *name, size_t *n)
{
	struct den_err err;
	char path[160], *text = NULL;
	auto_fd fd = -1;

	snprintf(path, sizeof(path), "i-%s/%s", id, name);
	fd = openat(templates, path, O_RDONLY);
	CHECK(fd >= 0 && fd_read_all(fd, 1 << 20, &text, n, &err) == 0);
	return text;
}

static void is_damaged(const char *id)
{
	struct template t = { 0 };
	struct image img = { 0 };
	struct den_err err = { 0 };

	CHECK(image_get(store, id, &img, &err) < 0);
	if (err.code != DEN_INTERNAL || !strstr(err.msg, "damaged"))
		fprintf(stderr, "%d %s\n", err.code, err.msg);
	CHECK(err.code == DEN_INTERNAL && strstr(err.msg, "damaged") && strstr(err.msg, "make it again"));
	CHECK(!img.layers && !img.detail);
	CHECK(image_open(store, pool, id, &t, NULL, &err) < 0 && !t.trees);
}

TEST(image_that_was_tampered_with_is_refused)
{
	static const char *const names[] = { "layers", "defaults", "config", "meta", "detail" };
	char id[65], hex[65], path[160];

	state_open();
	image_make("one", "a", id, hex);
	for (size_t i = 0; i < ARRAY_SIZE(names); i++) {
		size_t n;
		auto_free char *was = part_get(id, names[i], &n);
		struct image img = { 0 };

		if (i < 3) { /* of the others nothing depends on single bytes */
			for (size_t at_ = 0; at_ < n; at_ += 1 + n / 16) {
				was[at_] ^= 1;
				part(id, names[i], was, n);
				is_damaged(id);
				was[at_] ^= 1;
			}
			part(id, names[i], was, n - 1);
			is_damaged(id);
		}
		if (i != 1) { /* a text with a NUL */
			part(id, names[i], "\0", 1);
			is_damaged(id);
		}
		snprintf(path, sizeof(path), "i-%s/%s", id, names[i]);
		CHECK(unlinkat(templates, path, 0) == 0);
		is_damaged(id);
		CHECK(symlinkat("/etc/passwd", templates, path) == 0);
		is_damaged(id);
		CHECK(unlinkat(templates, path, 0) == 0 && mkfifoat(templates, path, 0600) == 0);
		is_damaged(id);
		CHECK(unlinkat(templates, path, 0) == 0);
		part(id, names[i], was, n);
		CHECK(image_get(store, id, &img, NULL) == 0);
		image_free(&img);
	}
	part(id, "meta", "created x\nsize 1\n", 17);
	is_damaged(id);
	part(id, "meta", "created 1\nsize 99999999999999999999\n", 36);
	is_damaged(id);
	part(id, "meta", "created 1\ncolour red\n", 21);
	is_damaged(id);
	state_close();
}

/* A whole folder whose id is right, but with parts that nobody would write: what is decoded is checked
 * by itself, not only by the digest. */
static void forge(const char *layers, const void *defaults, size_t n, char id[static 65])
{
	struct sha256 s;
	auto_buf b = { 0 };
	char name[80];

	buf_addf(&b, "den image 1\nparent -\nlayers %zu\n", strlen(layers));
	buf_addstr(&b, layers);
	buf_addf(&b, "config -\ndefaults %zu\n", n);
	buf_add(&b, defaults, n);
	sha256_init(&s);
	sha256_add(&s, b.p, b.len);
	sha256_hex(&s, id);
	snprintf(name, sizeof(name), "i-%s", id);
	CHECK(mkdirat(templates, name, 0700) == 0);
	part(id, "layers", layers, strlen(layers));
	part(id, "defaults", defaults, n);
	part(id, "meta", "created 1\nsize 1\n", 17);
	part(id, "detail", "", 0);
}

TEST(image_with_a_right_digest_is_still_checked)
{
	static const char *const layers[] = { "x\n", HEX64 "\n", HEX64 "\tu0\t/\n", HEX64 "\tu0\t/\t-\tmore\n",
		HEX64 "\t../x\t/\t-\n", HEX64 "\t/x\t/\t-\n", HEX64 "\tu0\t/usr\t-\n", HEX64 "\tu0\t/\tmd5:1\n",
		HEX64 "\tu0\t/\t-\n\n" HEX64 "\tu0\t/\t-\n", "", HEX64 "\t\t/\t-\n" };
	struct image img = { 0 };
	auto_buf b = { 0 };
	char id[65];

	state_open();
	forge(HEX64 "\tu0\t/\t-\n", "", 0, id);
	CHECK(image_get(store, id, &img, NULL) == 0);
	image_free(&img);
	for (size_t i = 0; i < ARRAY_SIZE(layers); i++) {
		forge(layers[i], "", 0, id);
		is_damaged(id);
	}
#define FORGED(what)                                             \
	do {                                                     \
		b.len = 0;                                       \
		what;                                            \
		forge(HEX64 "\tu0\t/\t-\n", b.p, b.len, id);     \
		is_damaged(id);                                  \
	} while (0)
	FORGED(wire_put_str(&b, F_NAME, "x"));				 /* another message's */
	FORGED(wire_put_str(&b, (enum wire_field)(WIRE_FIELDS + 7), "x")); /* nobody's */
	FORGED((wire_put_str(&b, F_USER, "a"), wire_put_str(&b, F_USER, "b")));
	FORGED(wire_put_bytes(&b, F_CWD, "a\0b", 3));
	FORGED(wire_put_bytes(&b, F_ARGV, "a\0b", 3));
	FORGED(wire_put_str(&b, F_ENV, "NAME"));
	FORGED((wire_put_str(&b, F_USER, "abcdef"), b.len -= 2));
	FORGED(buf_add(&b, "abc", 3));
	state_close();
}

TEST(image_that_is_damaged_is_listed_repaired_and_keeps_all_layers)
{
	char a[65], b[65], hex_a[65], hex_b[65], loose[65], want[64];
	auto_buf got = { 0 };
	struct den_err err;
	struct image img;
	int removed = 0;

	state_open();
	image_make("one", "a", a, hex_a);
	image_make("two", "b", b, hex_b);
	layer_make("loose", loose);
	part(a, "layers", "", 0);
	CHECK(image_each(store, collect, &got, &err) == 0);
	snprintf(want, sizeof(want), "a=%.6s!;b=%.6s;", a, b);
	CHECK(!strcmp(buf_str(&got), want));
	CHECK(image_untag(store, "b", false, &err) == 0);
	CHECK(image_sweep(store, pool, count, &removed, &err) < 0 && strstr(err.msg, "layers are kept"));
	CHECK(removed == 1 && layer_there(hex_a) && layer_there(hex_b));
	image_fill(&img, hex_a);
	CHECK(image_put(store, &img, NULL, &err) == 0 && !strcmp(img.id, a));
	image_free(&img);
	CHECK(image_get(store, a, &img, &err) == 0 && img.n_layers == 1);
	CHECK(entries(templates, ".tmp") == 0);
	image_free(&img);
	part(a, "layers", "", 0); /* and a damaged one can be removed */
	CHECK(image_untag(store, "a", false, &err) == 0);
	CHECK(image_sweep(store, pool, count, &removed, &err) == 0 && entries(templates, "i-") == 0);
	state_close();
}
