#include "parts.h"

#include <pthread.h>
#include <string.h>

#include "boxes.h"
#include "den.h"
#include "e2b_parts.h"
#include "events.h"
#include "log.h"
#include "mem.h"
#include "meter.h"
#include "ports.h"
#include "serve.h"
#include "warm.h"

/* In the order in which they start; they end the other way round. */
static const struct serve_part boxes_part = { "boxes", boxes_start, boxes_stop };
static const struct serve_part events_part = { "events", events_start, events_stop };
static const struct serve_part meter_part = { "meter", meter_start, meter_stop };
static const struct serve_part ports_part = { "ports", ports_start, NULL };

static const struct serve_part *const parts[] = {
	&boxes_part, /* before events: it hooks into them */
	&events_part,
	&ports_part,
	&v1_part,
	&e2b_part,
	&meter_part,
	&warm_part, /* last: it makes boxes */
};

int parts_start(struct den_err *err)
{
	for (size_t i = 0; i < ARRAY_SIZE(parts); i++)
		if (parts[i]->start && parts[i]->start(err) < 0)
			return den_wrap(err, "%s", parts[i]->name);
	return 0;
}

void parts_stop(void)
{
	for (size_t i = ARRAY_SIZE(parts); i-- > 0;)
		if (parts[i]->stop)
			parts[i]->stop();
}

/* ---- templates that clients expect ---- */

static const char *const templates[] = { "base", "code-interpreter-v1" };

static void *make_templates(void *unused)
{
	struct den_template *t;
	struct den_err err;
	struct den *d;

	(void)unused;
	if (serve_den(&d, &err) < 0)
		return NULL;
	for (size_t i = 0; i < ARRAY_SIZE(templates); i++) {
		if (den_template_get(d, templates[i], &t, &err) == 0) {
			den_templates_free(t, 1);
			continue;
		}
		log_line("info", "template", "making '%s'; boxes can be made from it when it is there", templates[i]);
		if (launch_builtin(templates[i], &err) < 0)
			log_line("warn", "template", "'%s' could not be made: %s", templates[i], err.msg);
		else
			log_line("info", "template", "'%s' is there", templates[i]);
	}
	den_close(d);
	return NULL;
}

void parts_templates(void)
{
	pthread_t t;

	if (pthread_create(&t, NULL, make_templates, NULL) == 0)
		pthread_detach(t);
}
