/*
 * What libden and keepers advise is for the command line: "the box is paused; 'den resume' lets it go on". Who asks
 * over HTTP has no command line on that host. Here each of these commands becomes what the dialect has for it; one that
 * it has nothing for is said to be the host's.
 */
#pragma once

#include "buf.h"

enum advice { ADVICE_V1, ADVICE_E2B };

/* box: as the client named it, "" or NULL: not known. Appends to out; *msg may be any bytes. */
void advice_text(enum advice dialect, const char *msg, const char *box, struct buf *out);
