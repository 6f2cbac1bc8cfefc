/*
 * Images: the input is taken as each of the JSON documents, and as an archive that is opened, chosen
 * from and read to its end. What was understood keeps its promises.
 */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "fd.h"
#include "oci.h"
#include "strv.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

static void check(bool ok)
{
	if (!ok)
		abort();
}

static void documents(const char *text, size_t n)
{
	struct den_err err = { 0 };
	struct oci_index index;
	struct oci_manifest m;
	struct oci_config c;
	struct docker_image *d;
	size_t count;

	if (oci_index_parse(text, n, &index, &err) == 0) {
		for (size_t i = 0; i < index.n; i++)
			check(strlen(index.list[i].digest.s) == 71 &&
				!strchr(index.list[i].digest.s, '/'));
		oci_index_free(&index);
	}
	if (oci_manifest_parse(text, n, &m, &err) == 0) {
		check(m.n_layers && m.n_layers <= OCI_LAYERS_MAX && m.config.media == OCI_CONFIG);
		oci_manifest_free(&m);
	}
	if (oci_config_parse(text, n, false, &c, &err) == 0) {
		check(strv_len(c.diff_ids) <= OCI_LAYERS_MAX &&
			(!c.workdir || c.workdir[0] == '/'));
		for (char **e = c.env; e && *e; e++)
			check(strchr(*e, '=') > *e);
		oci_config_free(&c);
	}
	if (docker_manifest_parse(text, n, &d, &count, &err) == 0) {
		check(count && d[0].config && d[0].layers);
		docker_images_free(d, count);
	}
}

static void layers_read(struct oci *o, const struct oci_image *i)
{
	struct den_err err = { 0 };
	struct oci_digest d;

	for (size_t k = 0; k < i->n_layers && k < 4; k++) {
		struct oci_reader *r;

		if (oci_layer_open(o, &i->layers[k], 1 << 20, &r, &err) < 0)
			continue;
		if (oci_layer_end(r, &d, &err) == 0 && i->layers[k].diff_id.s[0])
			check(!strcmp(d.s, i->layers[k].diff_id.s));
		oci_layer_close(r);
	}
}

static void archive(const uint8_t *data, size_t n)
{
	int fd = memfd_create("fuzz", MFD_CLOEXEC);
	struct oci_choice choice = { 0 };
	struct den_err err = { 0 };
	struct oci_image i = { 0 };
	struct oci *o;

	check(fd >= 0 && fd_write_all(fd, data, n, NULL) == 0 && lseek(fd, 0, SEEK_SET) == 0);
	if (oci_open_fd(fd, 1 << 20, &o, &err) < 0) {
		check(err.msg[0]);
		return;
	}
	if (oci_image_load(o, &choice, &i, &err) == 0)
		layers_read(o, &i);
	oci_image_free(&i);
	oci_close(o);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
	documents((const char *)data, n);
	/* a child each time would make it slow: compressed input is for the unit tests */
	if (n >= 512 && memcmp(data, "\x1f\x8b", 2) &&
		memcmp(data,
			"\xfd"
			"7zXZ",
			5) &&
		memcmp(data, "\x28\xb5\x2f\xfd", 4))
		archive(data, n);
	return 0;
}
