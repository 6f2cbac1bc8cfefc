#include "handlers.h"
#include "openapi_text.h"

int v1_openapi(struct req *r, struct den_err *err)
{
	if (!QUERY(r, err))
		return -1;
	return req_reply(r, 200, "application/yaml", openapi_text, openapi_text_len);
}
