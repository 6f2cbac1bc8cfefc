/* Images: decompressing in its cell, JSON, archives. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <lzma.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <zlib.h>
#include <zstd.h>

#include "archive.h"
#include "buf.h"
#include "decompress.h"
#include "fd.h"
#include "mem.h"
#include "oci.h"
#include "pack.h"
#include "retar.h"
#include "sha256.h"
#include "spool.h"
#include "strv.h"
#include "tar.h"
#include "test.h"

struct bytes {
	const char *p;
	size_t left, piece; /* given out in pieces of this size */
};

static ssize_t bytes_read(void *buf, size_t cap, void *user, struct den_err *err)
{
	struct bytes *b = user;
	size_t n = MIN(MIN(cap, b->left), b->piece ? b->piece : b->left);

	(void)err;
	if (n)
		memcpy(buf, b->p, n);
	b->p += n;
	b->left -= n;
	return (ssize_t)n;
}

/* What cannot be compressed away, and what can. */
static void fill(struct buf *b, size_t n)
{
	uint32_t x = 12345;

	for (size_t i = 0; i < n; i++) {
		x = x * 1664525 + 1013904223;
		buf_add(b, (char[]){ (char)(i / 65536 % 2 ? x >> 24 : 'a') }, 1);
	}
}

static void gzip_of(const struct buf *in, struct buf *out)
{
	z_stream z = { 0 };

	CHECK(deflateInit2(&z, 6, Z_DEFLATED, 15 + 16, 8, Z_DEFAULT_STRATEGY) == Z_OK);
	buf_reserve(out, deflateBound(&z, in->len) + 64);
	z.next_in = (Bytef *)in->p;
	z.avail_in = (uInt)in->len;
	z.next_out = (Bytef *)out->p + out->len;
	z.avail_out = (uInt)(deflateBound(&z, in->len) + 64);
	CHECK(deflate(&z, Z_FINISH) == Z_STREAM_END);
	out->len += z.total_out;
	deflateEnd(&z);
}

static void zstd_of(const struct buf *in, struct buf *out)
{
	size_t cap = ZSTD_compressBound(in->len), n;

	buf_reserve(out, cap);
	n = ZSTD_compress(out->p + out->len, cap, in->p, in->len, 3);
	CHECK(!ZSTD_isError(n));
	out->len += n;
}

static void xz_of(const struct buf *in, struct buf *out)
{
	size_t cap = lzma_stream_buffer_bound(in->len), at = 0;

	buf_reserve(out, cap);
	CHECK(lzma_easy_buffer_encode(2, LZMA_CHECK_CRC64, NULL, (const uint8_t *)in->p, in->len,
		      (uint8_t *)out->p + out->len, &at, cap) == LZMA_OK);
	out->len += at;
}

static void (*const packers[])(const struct buf *, struct buf *) = {
	[DECOMPRESS_GZIP] = gzip_of, [DECOMPRESS_ZSTD] = zstd_of, [DECOMPRESS_XZ] = xz_of
};

/* All of it, into out. */
static int unpack(const void *p, size_t n, size_t piece, uint64_t max, struct buf *out,
	enum decompress_kind *kind, struct den_err *err)
{
	struct bytes in = { p, n, piece };
	struct decompress *d;
	char chunk[7000];
	ssize_t r;

	*err = (struct den_err){ 0 };
	if (decompress_new(bytes_read, &in, max, &d, err) < 0)
		return -1;
	while ((r = decompress_read(chunk, sizeof(chunk), d, err)) > 0)
		buf_add(out, chunk, (size_t)r);
	if (r < 0) {
		struct den_err again = { 0 };

		/* a failure stays one */
		CHECK(decompress_read(chunk, sizeof(chunk), d, &again) < 0 &&
			!strcmp(again.msg, err->msg));
	}
	if (kind)
		*kind = decompress_kind(d);
	decompress_free(d);
	return r < 0 ? -1 : 0;
}

TEST(decompress_gives_back_what_was_packed)
{
	static const size_t sizes[] = { 1, 131072, 131073, 700000 };
	struct den_err err;

	for (enum decompress_kind k = DECOMPRESS_GZIP; k <= DECOMPRESS_XZ; k++) {
		for (size_t i = 0; i < ARRAY_SIZE(sizes); i++) {
			auto_buf plain = { 0 }, packed = { 0 }, out = { 0 };
			enum decompress_kind seen;

			fill(&plain, sizes[i]);
			packers[k](&plain, &packed);
			CHECK(unpack(packed.p, packed.len, 4099, 0, &out, &seen, &err) == 0);
			CHECK(seen == k && out.len == plain.len &&
				!memcmp(out.p, plain.p, out.len));
		}
	}
}

TEST(decompress_passes_plain_bytes_through)
{
	auto_buf out = { 0 };
	enum decompress_kind seen;
	struct den_err err;

	CHECK(unpack("hello", 5, 1, 0, &out, &seen, &err) == 0);
	CHECK(seen == DECOMPRESS_NONE && out.len == 5 && !memcmp(out.p, "hello", 5));
	out.len = 0;
	CHECK(unpack("", 0, 1, 0, &out, &seen, &err) == 0 && out.len == 0);
}

TEST(decompress_takes_what_was_put_together)
{
	struct den_err err;

	for (enum decompress_kind k = DECOMPRESS_GZIP; k <= DECOMPRESS_XZ; k++) {
		auto_buf plain = { 0 }, packed = { 0 }, out = { 0 };

		fill(&plain, 300000);
		packers[k](&plain, &packed);
		packers[k](&plain, &packed);
		CHECK(unpack(packed.p, packed.len, 0, 0, &out, NULL, &err) == 0 &&
			out.len == 600000);
		if (k != DECOMPRESS_GZIP)
			continue;
		out.len = 0; /* zeros at its end are padding, other bytes are not */
		buf_add(&packed, "\0\0\0\0", 4);
		CHECK(unpack(packed.p, packed.len, 0, 0, &out, NULL, &err) == 0 &&
			out.len == 600000);
		buf_add(&packed, "junk", 4);
		CHECK(unpack(packed.p, packed.len, 0, 0, &out, NULL, &err) < 0 &&
			strstr(err.msg, "corrupt"));
	}
}

TEST(decompress_tells_cut_from_corrupt)
{
	struct den_err err;

	for (enum decompress_kind k = DECOMPRESS_GZIP; k <= DECOMPRESS_XZ; k++) {
		auto_buf plain = { 0 }, packed = { 0 }, out = { 0 };

		fill(&plain, 200000);
		packers[k](&plain, &packed);
		CHECK(unpack(packed.p, packed.len - 1, 0, 0, &out, NULL, &err) < 0);
		CHECK(err.code == DEN_INVALID && strstr(err.msg, "too early"));
		CHECK(unpack(packed.p, packed.len / 2, 0, 0, &out, NULL, &err) < 0 &&
			strstr(err.msg, "too early"));
		/* zstd need not carry a checksum, so it tells only by its own structure */
		memset(packed.p + (k == DECOMPRESS_ZSTD ? 4 : packed.len / 2), 0xff, 64);
		CHECK(unpack(packed.p, packed.len, 0, 0, &out, NULL, &err) < 0);
		CHECK(err.code == DEN_INVALID && err.msg[0]);
	}
	CHECK(unpack("BZh91AY&SY", 10, 0, 0, &(struct buf){ 0 }, NULL, &err) < 0 &&
		err.code == DEN_UNSUPPORTED);
}

TEST(decompress_stops_a_bomb_at_the_limit)
{
	auto_buf plain = { 0 }, packed = { 0 }, out = { 0 };
	struct den_err err;

	buf_reserve(&plain, 8 << 20);
	memset(plain.p, 0, 8 << 20);
	plain.len = 8 << 20;
	for (enum decompress_kind k = DECOMPRESS_GZIP; k <= DECOMPRESS_XZ; k++) {
		packed.len = out.len = 0;
		packers[k](&plain, &packed);
		CHECK(unpack(packed.p, packed.len, 0, 1 << 20, &out, NULL, &err) < 0 &&
			err.code == DEN_LIMIT);
		CHECK(out.len <= 1 << 20);
	}
}

TEST(decompress_that_is_given_up_leaves_no_child)
{
	auto_buf plain = { 0 }, packed = { 0 };
	struct bytes in = { 0 };
	struct decompress *d;
	struct den_err err;
	char one[1];

	fill(&plain, 4 << 20);
	gzip_of(&plain, &packed);
	in = (struct bytes){ packed.p, packed.len, 0 };
	CHECK(decompress_new(bytes_read, &in, 0, &d, &err) == 0);
	CHECK(decompress_read(one, 1, d, &err) == 1);
	decompress_free(d);
	CHECK(waitpid(-1, NULL, WNOHANG) < 0 && errno == ECHILD);
}

#if !defined(__SANITIZE_ADDRESS__)
static bool file_has(const char *path, const char *line)
{
	auto_fd fd = open(path, O_RDONLY | O_CLOEXEC);
	auto_free char *text = NULL;

	CHECK(fd >= 0 && fd_read_all(fd, 1 << 16, &text, NULL, NULL) == 0);
	return strstr(text, line) != NULL;
}

TEST(decompress_child_sits_in_its_cell)
{
	auto_buf plain = { 0 }, packed = { 0 };
	struct bytes in;
	struct decompress *d;
	struct den_err err;
	char one[1], path[64], children[64];
	struct dirent *e;
	int pid, fds = 0;
	DIR *dir;

	fill(&plain, 8 << 20); /* more than the pipes hold: it is still at work */
	gzip_of(&plain, &packed);
	in = (struct bytes){ packed.p, packed.len, 0 };
	CHECK(decompress_new(bytes_read, &in, 0, &d, &err) == 0);
	CHECK(decompress_read(one, 1, d, &err) == 1);
	CHECK(file_read_at(AT_FDCWD, "/proc/thread-self/children", children, sizeof(children), &err) == 0);
	pid = atoi(children);
	CHECK(pid > 0);
	snprintf(path, sizeof(path), "/proc/%d/status", pid);
	CHECK(file_has(path, "Seccomp:\t2\n") && file_has(path, "NoNewPrivs:\t1\n"));
	snprintf(path, sizeof(path), "/proc/%d/limits", pid);
	CHECK(file_has(path, "Max address space         268435456            268435456"));
	snprintf(path, sizeof(path), "/proc/%d/fd", pid);
	dir = opendir(path);
	CHECK(dir != NULL);
	while ((e = readdir(dir)))
		fds += e->d_name[0] != '.';
	closedir(dir);
	CHECK(fds == 2);
	decompress_free(d);
}

TEST(decompress_needing_too_much_memory_is_an_error)
{
	auto_buf out = { 0 }, packed = { 0 };
	ZSTD_CCtx *z = ZSTD_createCCtx();
	ZSTD_inBuffer in = { "x", 1, 0 };
	ZSTD_outBuffer o;
	struct den_err err;

	/* a frame that asks for a window of 2 GiB */
	CHECK(!ZSTD_isError(ZSTD_CCtx_setParameter(z, ZSTD_c_windowLog, 31)));
	ZSTD_CCtx_setParameter(z, ZSTD_c_contentSizeFlag, 0);
	buf_reserve(&packed, 4096);
	o = (ZSTD_outBuffer){ packed.p, 4096, 0 };
	if (ZSTD_isError(ZSTD_compressStream2(z, &o, &in, ZSTD_e_flush)))
		SKIP("no memory here to make such a frame");
	ZSTD_freeCCtx(z);
	CHECK(unpack(packed.p, o.pos, 0, 0, &out, NULL, &err) < 0 && err.code == DEN_LIMIT);
}
#endif

/* ---- JSON ---- */

#define HEX "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"
#define LAYER(media) "{\"mediaType\":\"" media "\",\"digest\":\"sha256:" HEX "\",\"size\":7}"
#define CONFIG_DESC LAYER(OCI_MEDIA_CONFIG)

static int manifest(const char *text, struct den_err *err)
{
	struct oci_manifest m;

	*err = (struct den_err){ 0 };
	if (oci_manifest_parse(text, strlen(text), &m, err) < 0)
		return -1;
	oci_manifest_free(&m);
	return 0;
}

TEST(oci_digests_are_checked_before_they_become_paths)
{
	static const char *const bad[] = { "", "sha256:", "sha256:../../../etc/passwd",
		("sha256:" HEX "0"), ("md5:" HEX),
		"sha256:0123456789ABCDEF0123456789abcdef0123456789abcdef0123456789abcdef", HEX };
	struct oci_digest d = { "untouched" };
	struct den_err err;

	for (size_t i = 0; i < ARRAY_SIZE(bad); i++)
		CHECK(oci_digest_parse(bad[i], &d, &err) < 0 && !strcmp(d.s, "untouched"));
	CHECK(oci_digest_parse(NULL, &d, &err) < 0);
	CHECK(oci_digest_parse("sha512:00", &d, &err) < 0 && err.code == DEN_UNSUPPORTED);
	CHECK(oci_digest_parse("sha256:" HEX, &d, &err) == 0 && !strcmp(oci_digest_hex(&d), HEX));
}

TEST(oci_manifests_with_odd_layers_are_refused)
{
	struct den_err err;
	auto_buf many = { 0 };

	CHECK(manifest("{\"schemaVersion\":2,\"config\":" CONFIG_DESC
		       ",\"layers\":[" LAYER(OCI_MEDIA_LAYER "+gzip") "]}",
		      &err) == 0);
	CHECK(manifest("{\"config\":" CONFIG_DESC ",\"layers\":[" LAYER("text/plain") "]}", &err) <
			0 &&
		strstr(err.msg, "no layer"));
	CHECK(manifest("{\"config\":" CONFIG_DESC ",\"layers\":[" LAYER(
			       "application/vnd.docker.image.rootfs.foreign.diff.tar.gzip") "]}",
		      &err) < 0 &&
		strstr(err.msg, "foreign"));
	CHECK(manifest("{\"config\":" CONFIG_DESC ",\"layers\":[]}", &err) < 0 &&
		strstr(err.msg, "no layers"));
	CHECK(manifest("{\"config\":" LAYER("application/x") ",\"layers\":[]}", &err) < 0 &&
		strstr(err.msg, "no container image"));
	CHECK(manifest("{\"schemaVersion\":1}", &err) < 0 && err.code == DEN_UNSUPPORTED);
	CHECK(manifest("{\"mediaType\":\"" OCI_MEDIA_INDEX "\"}", &err) < 0);
	CHECK(manifest("[]", &err) < 0);
	CHECK(manifest("{\"config\":{\"digest\":\"sha256:" HEX "\",\"size\":-1},\"layers\":[]}",
		      &err) < 0 &&
		strstr(err.msg, "negative"));
	buf_addstr(&many, "{\"config\":" CONFIG_DESC ",\"layers\":[");
	for (int i = 0; i <= OCI_LAYERS_MAX; i++)
		buf_addf(&many, "%s" LAYER(OCI_MEDIA_LAYER), i ? "," : "");
	buf_addstr(&many, "]}");
	CHECK(manifest(buf_str(&many), &err) < 0 && err.code == DEN_LIMIT);
}

TEST(oci_json_is_bounded)
{
	auto_buf deep = { 0 }, long_one = { 0 };
	struct den_err err;

	for (int i = 0; i < 200000; i++)
		buf_add(&deep, "[", 1);
	CHECK(manifest(buf_str(&deep), &err) < 0 && err.code == DEN_LIMIT);
	buf_reserve(&long_one, 5 << 20);
	memset(long_one.p, ' ', 5 << 20);
	long_one.len = 5 << 20;
	CHECK(manifest(buf_str(&long_one), &err) < 0 && err.code == DEN_LIMIT);
	CHECK(manifest("{\"a\":1,\"a\":2}", &err) < 0 && strstr(err.msg, "duplicate"));
	CHECK(manifest("{\"a\":\"\\\"[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[\"}", &err) <
			0 &&
		err.code == DEN_INVALID); /* brackets in a text do not count */
	CHECK(manifest("{\"layers\":null,\"config\":null}", &err) <
		0); /* null is parsed, and is nothing */
}

TEST(oci_config_gives_the_defaults)
{
	static const char text[] =
		"{\"os\":\"linux\",\"architecture\":\"amd64\",\"config\":{\"User\":\"app\",\"Env\":"
		"[\"A=b\"],"
		"\"WorkingDir\":\"/srv\",\"Entrypoint\":[\"/"
		"x\",\"y\"],\"Cmd\":null},\"rootfs\":{\"diff_ids\":[\"sha256:" HEX "\"]}}";
	struct oci_config c;
	struct den_err err;

	CHECK(oci_config_parse(text, strlen(text), true, &c, &err) == 0);
	CHECK(!strcmp(c.user, "app") && !strcmp(c.workdir, "/srv") && !strcmp(c.env[0], "A=b"));
	CHECK(strv_len(c.entrypoint) == 2 && !c.cmd && strv_len(c.diff_ids) == 1 &&
		!strcmp(c.text, text));
	oci_config_free(&c);
	CHECK(oci_config_parse("{}", 2, true, &c, &err) < 0 && strstr(err.msg, "diff_ids"));
	CHECK(oci_config_parse("{}", 2, false, &c, &err) == 0);
	oci_config_free(&c);
	CHECK(oci_config_parse("{\"config\":{\"Env\":[\"novalue\"]}}", 31, false, &c, &err) < 0);
	CHECK(oci_config_parse("{\"config\":{\"WorkingDir\":\"x\"}}", 29, false, &c, &err) < 0);
}

/* ---- archives ---- */

static void put(struct buf *b, const char *name, const void *data, size_t n)
{
	struct tar_entry e = { .type = TAR_FILE, .name = name, .size = n, .mode = 0644 };

	CHECK(tar_put_entry(b, &e, NULL) == 0);
	buf_add(b, data, n);
	tar_put_pad(b, n);
}

static void put_link(struct buf *b, const char *name, const char *target)
{
	struct tar_entry e = { .type = TAR_SYMLINK, .name = name, .target = target, .mode = 0777 };

	CHECK(tar_put_entry(b, &e, NULL) == 0);
}

static int fd_of(const struct buf *b)
{
	int fd = memfd_create("archive", MFD_CLOEXEC);

	CHECK(fd >= 0 && fd_write_all(fd, b->p, b->len, NULL) == 0 && lseek(fd, 0, SEEK_SET) == 0);
	return fd;
}

static struct oci_digest digest_of(const struct buf *b)
{
	struct oci_digest d = { "sha256:" };
	struct sha256 s;

	sha256_init(&s);
	sha256_add(&s, b->p, b->len);
	sha256_hex(&s, d.s + 7);
	return d;
}

/* A layer with one file, packed as kind says. */
static void layer_make(enum decompress_kind kind, struct buf *packed, struct oci_digest *diff_id)
{
	auto_buf plain = { 0 };

	put(&plain, "etc/f", "abc", 3);
	tar_put_end(&plain);
	*diff_id = digest_of(&plain);
	if (kind)
		packers[kind](&plain, packed);
	else
		buf_add(packed, plain.p, plain.len);
}

static void blob_put(struct buf *out, const struct buf *blob, const char *media, struct buf *desc)
{
	struct oci_digest d = digest_of(blob);
	char name[100];

	snprintf(name, sizeof(name), "blobs/sha256/%s", oci_digest_hex(&d));
	put(out, name, blob->p, blob->len);
	buf_addf(desc, "{\"mediaType\":\"%s\",\"digest\":\"%s\",\"size\":%zu", media, d.s,
		blob->len);
}

enum fault { FINE, BAD_LAYER, BAD_DIFF_ID, NO_LAYER, OTHER_ARCH };

static void image_make(struct buf *out, enum fault fault)
{
	auto_buf layer = { 0 }, layer_desc = { 0 }, config = { 0 }, config_desc = { 0 }, m = { 0 },
		 m_desc = { 0 }, index = { 0 }, drop = { 0 };
	struct oci_digest diff_id;

	layer_make(DECOMPRESS_GZIP, &layer, &diff_id);
	if (fault == BAD_DIFF_ID)
		memset(diff_id.s + 7, '0', 64);
	blob_put(fault == NO_LAYER || fault == BAD_LAYER ? &drop : out, &layer,
		OCI_MEDIA_LAYER "+gzip", &layer_desc);
	if (fault == BAD_LAYER) {
		struct oci_digest d = digest_of(&layer);
		char name[100];

		layer.p[layer.len / 2] ^= 0x55;
		snprintf(name, sizeof(name), "blobs/sha256/%s", oci_digest_hex(&d));
		put(out, name, layer.p, layer.len);
	}
	buf_addf(&config,
		"{\"os\":\"linux\",\"config\":{\"Env\":[\"A=b\"]},\"rootfs\":{\"diff_ids\":[\"%s\"]"
		"}}",
		diff_id.s);
	blob_put(out, &config, OCI_MEDIA_CONFIG, &config_desc);
	buf_addf(&m, "{\"schemaVersion\":2,\"config\":%s},\"layers\":[%s}]}", buf_str(&config_desc),
		buf_str(&layer_desc));
	blob_put(out, &m, OCI_MEDIA_MANIFEST, &m_desc);
	buf_addf(&index,
		"{\"schemaVersion\":2,\"manifests\":[%s%s,\"annotations\":{\"" OCI_REF_NAME
		"\":\"app:1\"}}]}",
		buf_str(&m_desc),
		fault == OTHER_ARCH ? ",\"platform\":{\"os\":\"linux\",\"architecture\":\"pdp11\"}"
				    : "");
	put(out, "oci-layout", "{}", 2);
	put(out, "index.json", index.p, index.len);
	tar_put_end(out);
}

/* Reads all layers; what is wrong is in *err. */
static int image_read(int fd, const char *ref, struct den_err *err)
{
	struct oci_choice choice = { .ref = ref };
	struct oci_image i = { 0 };
	struct oci_digest d;
	struct oci *o;
	int r;

	*err = (struct den_err){ 0 };
	if (oci_open_fd(fd, 0, &o, err) < 0)
		return -1;
	r = oci_image_load(o, &choice, &i, err);
	for (size_t k = 0; r == 0 && k < i.n_layers; k++) {
		struct oci_reader *l;

		r = oci_layer_open(o, &i.layers[k], 0, &l, err);
		if (r == 0) {
			r = oci_layer_end(l, &d, err);
			oci_layer_close(l);
		}
	}
	oci_image_free(&i);
	oci_close(o);
	return r;
}

TEST(oci_archive_is_read_and_checked)
{
	static const struct {
		enum fault fault;
		enum den_code code;
		const char *has;
	} cases[] = { { BAD_LAYER, DEN_CONFLICT, "digest" },
		{ BAD_DIFF_ID, DEN_CONFLICT, "unpacked layer" },
		{ NO_LAYER, DEN_INVALID, "is missing" },
		{ OTHER_ARCH, DEN_NOT_FOUND, "no image for linux/" } };
	struct den_err err;

	for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
		auto_buf b = { 0 };

		image_make(&b, cases[i].fault);
		CHECK(image_read(fd_of(&b), NULL, &err) < 0);
		if (err.code != cases[i].code || !strstr(err.msg, cases[i].has))
			fprintf(stderr, "  %zu: %d %s\n", i, err.code, err.msg);
		CHECK(err.code == cases[i].code && strstr(err.msg, cases[i].has));
	}
	for (enum decompress_kind k = DECOMPRESS_NONE; k <= DECOMPRESS_XZ; k++) {
		auto_buf b = { 0 }, packed = { 0 };

		image_make(&b, FINE);
		if (k)
			packers[k](&b, &packed);
		CHECK(image_read(fd_of(k ? &packed : &b), NULL, &err) == 0);
		CHECK(image_read(fd_of(k ? &packed : &b), "app:1", &err) == 0);
		CHECK(image_read(fd_of(k ? &packed : &b), "app", &err) == 0);
		CHECK(image_read(fd_of(k ? &packed : &b), "other", &err) < 0 &&
			err.code == DEN_NOT_FOUND);
	}
}

TEST(oci_archive_may_come_from_a_pipe)
{
	auto_buf b = { 0 };
	struct den_err err;
	int p[2];
	pid_t pid;

	image_make(&b, FINE);
	CHECK(pipe2(p, O_CLOEXEC) == 0);
	pid = fork();
	if (pid == 0) {
		(void)fd_write_all(p[1], b.p, b.len, NULL);
		_exit(0);
	}
	close(p[1]);
	CHECK(image_read(p[0], NULL, &err) == 0);
	waitpid(pid, NULL, 0);
}

TEST(docker_archive_with_a_linked_layer_is_read)
{
	static const char m[] = "[{\"Config\":\"c.json\",\"RepoTags\":[\"x:1\"],"
				"\"Layers\":[\"aa/layer.tar\",\"bb/layer.tar\"]}]";
	auto_buf b = { 0 }, layer = { 0 }, config = { 0 };
	struct oci_digest diff_id;
	struct den_err err;

	layer_make(DECOMPRESS_NONE, &layer, &diff_id);
	buf_addf(&config, "{\"rootfs\":{\"diff_ids\":[\"%s\",\"%s\"]}}", diff_id.s, diff_id.s);
	put(&b, "./aa/layer.tar", layer.p, layer.len);
	put_link(&b, "bb/layer.tar", "../aa/layer.tar");
	put(&b, "c.json", config.p, config.len);
	put(&b, "manifest.json", m, strlen(m));
	tar_put_end(&b);
	CHECK(image_read(fd_of(&b), NULL, &err) == 0);
	CHECK(image_read(fd_of(&b), "x:1", &err) == 0);
	CHECK(image_read(fd_of(&b), "y", &err) < 0 && err.code == DEN_NOT_FOUND);
}

TEST(docker_archive_cannot_name_files_outside)
{
	static const char m[] = "[{\"Config\":\"../../etc/passwd\",\"Layers\":[\"/etc/shadow\"]}]";
	auto_buf b = { 0 };
	struct den_err err;

	put(&b, "manifest.json", m, strlen(m));
	put_link(&b, "loop.json", "loop.json");
	tar_put_end(&b);
	CHECK(image_read(fd_of(&b), NULL, &err) < 0 && err.code == DEN_INVALID);
}

TEST(archive_cut_anywhere_is_an_error)
{
	auto_buf b = { 0 };
	struct den_err err;

	image_make(&b, FINE);
	for (size_t n = 0; n + 1024 < b.len; n += 300) {
		struct buf cut = { b.p, n, 0 };

		CHECK(image_read(fd_of(&cut), NULL, &err) < 0 && err.msg[0]);
	}
}

TEST(packer_output_is_what_decompress_reads_and_always_the_same)
{
	auto_buf plain = { 0 };
	struct den_err err;

	fill(&plain, 500000);
	for (enum export_pack pack = EXPORT_GZIP; pack <= EXPORT_PLAIN; pack++) {
		struct oci_digest first = { "" };

		for (int round = 0; round < 2; round++) {
			struct packed p;
			struct packer *k;
			auto_buf out = { 0 };
			auto_free char *bytes = NULL;
			size_t step = round ? 777 : 100000;

			CHECK(packer_new(pack, &k, &err) == 0);
			for (size_t at = 0; at < plain.len; at += step)
				CHECK(packer_add(plain.p + at, MIN(step, plain.len - at), k,
					      &err) == 0);
			CHECK(packer_end(k, &p, &err) == 0);
			packer_free(k);
			bytes = mem_alloc(p.size);
			CHECK(spool_read(p.fd, 0, bytes, p.size, &err) == 0);
			CHECK(unpack(bytes, p.size, 0, 0, &out, NULL, &err) == 0);
			CHECK(out.len == plain.len && !memcmp(out.p, plain.p, out.len));
			CHECK(!strcmp(p.diff_id.s, digest_of(&plain).s));
			CHECK(!first.s[0] || !strcmp(first.s, p.digest.s));
			first = p.digest;
			packed_free(&p);
		}
	}
}

static int see_entry(const struct tar_entry *e, void *user, struct den_err *err)
{
	(void)err;
	buf_addf(user, "%s %o %u:%u%s%s\n", e->name, e->mode, e->uid, e->gid, e->target ? " " : "",
		e->target ? e->target : "");
	return 0;
}

static int see_data(const void *p, size_t n, void *user, struct den_err *err)
{
	(void)err;
	buf_add(user, p, n);
	return 0;
}

static int see_end(void *user, struct den_err *err)
{
	(void)user, (void)err;
	return 0;
}

TEST(retar_changes_names_owners_and_modes)
{
	static const struct tar_ops ops = { see_entry, see_data, see_end };
	const struct retar_opt opt = {
		.owner = true, .uid = 5, .gid = 6, .mode = 0640, .rename = "new"
	};
	auto_buf b = { 0 }, seen = { 0 };
	struct tar_entry hard = {
		.type = TAR_HARDLINK, .name = "old/h", .target = "old/f", .mode = 0644
	};
	struct tar_reader *r = tar_reader_new(&ops, &seen);
	struct bytes in;
	struct retar *t;
	struct den_err err;
	char chunk[100];
	ssize_t n;

	put(&b, "./old/f", "data\n", 5);
	CHECK(tar_put_entry(&b, &hard, &err) == 0);
	put_link(&b, "old/l", "f");
	tar_put_end(&b);
	in = (struct bytes){ b.p, b.len, 13 };
	t = retar_new(bytes_read, &in, &opt);
	while ((n = retar_read(chunk, sizeof(chunk), t, &err)) > 0)
		CHECK(tar_reader_feed(r, chunk, (size_t)n, &err) == 0);
	CHECK(n == 0 && tar_reader_finish(r, &err) == 0);
	CHECK(!strcmp(
		buf_str(&seen), "new/f 640 5:6\ndata\nnew/h 644 5:6 new/f\nnew/l 777 5:6 f\n"));
	retar_free(t);
	tar_reader_free(r);
}
