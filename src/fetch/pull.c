#include <stdio.h>
#include <string.h>

#include "fetch.h"

/* The image that the reference means: through an index to the one for the platform. */
static int image_find(struct fetch *f, struct buf *text, struct descriptor *d, struct doc *doc,
	struct den_err *err)
{
	const struct index_entry *chosen;
	struct descriptor entry;

	if (registry_manifest(f, NULL, text, d, err) < 0)
		return -1;
	if (doc_parse(text->p ? text->p : "", text->len, d->media, doc, err) < 0)
		return den_wrap(err, "image '%.60s' at %.60s", f->ref.repo, f->ref.host);
	if (!doc->is_index)
		return 0;
	if (index_choose(doc, &f->platform, &chosen, err) < 0)
		return den_wrap(err, "image '%.60s'", f->ref.repo);
	entry = chosen->d;
	if (entry.size > DOC_MAX)
		return den_fail(
			err, DEN_LIMIT, 0, "the image's manifest has more than %u bytes", DOC_MAX);
	doc_free(doc);
	text->len = 0;
	if (registry_manifest(f, &entry, text, d, err) < 0)
		return -1;
	/* the index was checked, so its word counts, not the server's */
	if (doc_parse(text->p ? text->p : "", text->len, entry.media, doc, err) < 0)
		return den_wrap(err, "image '%.60s' at %.60s", f->ref.repo, f->ref.host);
	if (doc->is_index)
		return den_fail(err, DEN_UNSUPPORTED, 0,
			"image '%.60s': an index within an index is not followed", f->ref.repo);
	return 0;
}

/* An index chooses; an image that stands alone must itself be for this platform. */
static int platform_check(
	struct fetch *f, const struct doc *doc, struct platform *ret, struct den_err *err)
{
	char wanted[100], is[100];
	auto_buf text = { 0 };

	if (layout_blob_read(&f->layout, &doc->config, &text, err) < 0 ||
		config_platform(buf_str(&text), text.len, ret, err) < 0)
		return den_wrap(err, "the image's configuration");
	if (!ret->os[0] || !ret->arch[0] || platform_fits(&f->platform, ret))
		return 0;
	platform_text(&f->platform, wanted);
	platform_text(ret, is);
	return den_fail(err, DEN_NOT_FOUND, 0,
		"image '%.60s' is for %s, not for %s; to have it all the same: --platform %s",
		f->ref.repo, is, wanted, is);
}

int fetch_pull(struct fetch *f, struct digest *ret, struct den_err *err)
{
	auto_buf text = { 0 };
	auto_doc doc = { 0 };
	struct descriptor d = { 0 };
	struct platform is;

	progress_init(&f->progress, "pulling", f->quiet);
	if (registry_open(f, false, err) < 0 || image_find(f, &text, &d, &doc, err) < 0)
		return -1;
	snprintf(d.media, sizeof(d.media), "%s", doc.media);
	if (blobs_pull(f, &doc.config, 1, err) < 0 || platform_check(f, &doc, &is, err) < 0)
		return -1;
	f->progress = (struct progress){ .doing = "pulling",
		.quiet = f->quiet,
		.last = f->progress.last,
		.shown = f->progress.shown,
		.terminal = f->progress.terminal }; /* the configuration is no layer */
	if (blobs_pull(f, doc.layers, doc.n_layers, err) < 0)
		return -1;
	if (layout_blob_put(&f->layout, &d.digest, text.p, text.len, err) < 0 ||
		layout_finish(&f->layout, &d, &is, f->ref.tag, err) < 0)
		return den_wrap(err, "layout directory");
	*ret = d.digest;
	return 0;
}
