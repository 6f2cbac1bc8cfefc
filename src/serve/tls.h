/* Certificates, as PEM text for the engine. */
#pragma once

#include "err.h"

int tls_load(const char *cert_file, const char *key_file, char **ret_cert, char **ret_key, struct den_err *err);
/* One of our own for `name`, *.name, localhost and its addresses: made at first use, kept in serve-tls.pem of the
 * state directory, made anew when it is about to end or the name is another. */
int tls_self_signed(int state_fd, const char *name, char **ret_cert, char **ret_key, struct den_err *err);
