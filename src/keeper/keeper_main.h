/* The keeper's way in, for den's main(). */
#pragma once

/* Runs until the box needs no keeper. The first client's socket is descriptor 3. id NULL: a clerk. */
int keeper_main(const char *state, const char *id);
