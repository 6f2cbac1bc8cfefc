/* Presets: rules that many need, by name. `den policy show NAME` prints them. */
#include <string.h>

#include "policy.h"

/* Where package managers fetch from: Debian and Ubuntu, npm, PyPI, crates, Go, RubyGems. Exact names where
 * there are few: what stands below one may be anybody's. */
static const char *const registries[] = {
	/* apt */
	"deb.debian.org",
	"ftp.debian.org",
	"security.debian.org",
	"snapshot.debian.org",
	"archive.debian.org",
	"cdn-fastly.deb.debian.org",
	"cdn-aws.deb.debian.org",
	/* of the countries one by one: below debian.org there are services that strangers write to */
	"ftp.at.debian.org",
	"ftp.au.debian.org",
	"ftp.be.debian.org",
	"ftp.bg.debian.org",
	"ftp.br.debian.org",
	"ftp.by.debian.org",
	"ftp.ca.debian.org",
	"ftp.ch.debian.org",
	"ftp.cl.debian.org",
	"ftp.cn.debian.org",
	"ftp.cz.debian.org",
	"ftp.de.debian.org",
	"ftp.dk.debian.org",
	"ftp.ee.debian.org",
	"ftp.es.debian.org",
	"ftp.fi.debian.org",
	"ftp.fr.debian.org",
	"ftp.gr.debian.org",
	"ftp.hk.debian.org",
	"ftp.hr.debian.org",
	"ftp.hu.debian.org",
	"ftp.ie.debian.org",
	"ftp.is.debian.org",
	"ftp.it.debian.org",
	"ftp.jp.debian.org",
	"ftp.kr.debian.org",
	"ftp.lt.debian.org",
	"ftp.lv.debian.org",
	"ftp.md.debian.org",
	"ftp.mx.debian.org",
	"ftp.nc.debian.org",
	"ftp.nl.debian.org",
	"ftp.no.debian.org",
	"ftp.nz.debian.org",
	"ftp.pl.debian.org",
	"ftp.pt.debian.org",
	"ftp.ro.debian.org",
	"ftp.ru.debian.org",
	"ftp.se.debian.org",
	"ftp.si.debian.org",
	"ftp.sk.debian.org",
	"ftp.sv.debian.org",
	"ftp.th.debian.org",
	"ftp.tr.debian.org",
	"ftp.tw.debian.org",
	"ftp.uk.debian.org",
	"ftp.us.debian.org",
	"archive.ubuntu.com",
	"*.archive.ubuntu.com", /* CC.archive.ubuntu.com, and those of clouds */
	"security.ubuntu.com",
	"ports.ubuntu.com",
	"old-releases.ubuntu.com",
	"esm.ubuntu.com",
	"ddebs.ubuntu.com",
	/* npm and yarn */
	"registry.npmjs.org",
	"registry.yarnpkg.com",
	/* PyPI */
	"pypi.org",
	"files.pythonhosted.org",
	/* crates */
	"crates.io",
	"index.crates.io",
	"static.crates.io",
	/* Go */
	"proxy.golang.org",
	"sum.golang.org",
	/* RubyGems */
	"rubygems.org",
	"index.rubygems.org",
	NULL,
};

/* The big forges, over ssh and https. */
static const char *const git[] = {
	"github.com:22",
	"github.com",
	"ssh.github.com:443:raw", /* ssh on the port of https */
	"api.github.com",
	"uploads.github.com",
	"codeload.github.com",
	"raw.githubusercontent.com",
	"objects.githubusercontent.com",
	"release-assets.githubusercontent.com",
	"gist.github.com:22",
	"gist.github.com",
	"media.githubusercontent.com", /* LFS */
	"github-cloud.githubusercontent.com",
	"gitlab.com:22",
	"gitlab.com",
	"registry.gitlab.com",
	"altssh.gitlab.com:443:raw",
	"bitbucket.org:22",
	"bitbucket.org",
	"api.bitbucket.org",
	"altssh.bitbucket.org:443:raw",
	"codeberg.org:22",
	"codeberg.org",
	"git.sr.ht:22",
	"git.sr.ht",
	"ssh.dev.azure.com:22",
	"dev.azure.com",
	"git.savannah.gnu.org:22",
	"git.savannah.gnu.org",
	"salsa.debian.org:22",
	"salsa.debian.org",
	NULL,
};

/* APIs of models. */
static const char *const llm[] = {
	"api.anthropic.com:443",
	"api.openai.com:443",
	"generativelanguage.googleapis.com:443",
	"aiplatform.googleapis.com:443",
	"api.mistral.ai:443",
	"codestral.mistral.ai:443",
	"api.cohere.com:443",
	"api.deepseek.com:443",
	"api.groq.com:443",
	"api.x.ai:443",
	"api.together.xyz:443",
	"api.fireworks.ai:443",
	"api.perplexity.ai:443",
	"openrouter.ai:443",
	"api.cerebras.ai:443",
	"api.moonshot.ai:443",
	"dashscope-intl.aliyuncs.com:443",
	"router.huggingface.co:443",
	NULL,
};

static const char *const anything[] = { "*", NULL };

const struct policy_preset policy_presets[] = {
	{ "registries", "packages of Debian, Ubuntu, npm, PyPI, crates, Go and RubyGems", registries },
	{ "git", "the big forges, over https and ssh", git },
	{ "llm", "the APIs of the big models", llm },
	{ "open", "anything on the public Internet, every port", anything },
	{ 0 },
};

const struct policy_preset *policy_preset_find(const char *name)
{
	for (const struct policy_preset *p = policy_presets; p->name; p++)
		if (!strcmp(p->name, name))
			return p;
	return NULL;
}
