#include "labels.h"

#include <string.h>

#include "strv.h"

int v1_labels_check(char *const *labels, struct den_err *err)
{
	for (; labels && *labels; labels++)
		if (!strncmp(*labels, LABEL_OWN, strlen(LABEL_OWN)))
			return den_fail(err, DEN_INVALID, 0,
				"label '%.60s': names that begin with 'den.' are the server's own; "
				"choose another",
				*labels);
	return 0;
}

void v1_labels_keep(char ***labels, const char *const *had)
{
	for (; had && *had; had++)
		if (!strncmp(*had, LABEL_OWN, strlen(LABEL_OWN)))
			strv_add(labels, *had);
}
