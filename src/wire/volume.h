/*
 * A volume: a directory of the state directory (volumes/NAME) that boxes can have, outlives them, and is shared by
 * them. Unlike a mount of the host it needs no trust in who asks: it leads to nothing that boxes did not make.
 * Its files have the ids of the box. In a spec it is a mount from "volume:NAME".
 */
#pragma once

#define PLACE_VOLUMES "volumes"

/* NAME of "volume:NAME": 1 to 63 of a-z 0-9 - , beginning with a letter or digit, so it may stand in a path.
 * NULL: it is no volume */
const char *volume_name(const char *host);
