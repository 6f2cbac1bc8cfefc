/* What systemd says to a service and hears from it, by hand: two environment variables and a datagram. */
#pragma once

int systemd_count(void); /* how many were passed */
/* Sockets that were passed, from descriptor 3 on; 0: none. They are made close-on-exec. */
int systemd_sockets(void);
/* "READY=1" and the like; nothing where there is no systemd. */
void systemd_notify(const char *text);
