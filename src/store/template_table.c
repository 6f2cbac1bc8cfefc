/*
 * The tree at "/": what is copied from the host and what is made. An allow-list: whatever is not
 * named here stays out, because what an administrator put into /etc is nobody's business in a box.
 * How a named file may still be refused is in template_copy.c.
 *
 * Left out on purpose although programs would read it: gitconfig, npmrc, pip.conf, wgetrc,
 * maven/settings.xml (tokens live there), environment (proxies with passwords), krb5*, ssh, ldap,
 * fstab, resolv.conf, hosts, hostname, machine-id (the host's; the wall writes the box's own).
 */
#include "template_make.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "fd.h"
#include "mem.h"

#define MIB (1u << 20)

/* clang-format off */
static const struct copy_rule rules[] = {
	/* The dynamic linker: without the cache each program start searches every directory. */
	{ "etc/ld.so.cache", .max = 16 * MIB, .flags = COPY_OPAQUE, .why = "program start" },
	{ "etc/ld.so.conf", .why = "ldconfig, run by package scripts" },
	{ "etc/ld.so.conf.d", .why = "the same" },
	/* Half of /usr/bin are links that go through here. */
	{ "etc/alternatives", .why = "awk, editor, cc, java ... are links into it" },

	/* TLS: public certificates. The name "private" is never copied. */
	{ "etc/ssl/certs", .max = 8 * MIB, .why = "certificates of authorities" },
	{ "etc/ssl/openssl.cnf", .why = "OpenSSL's defaults" },
	{ "etc/ca-certificates", .why = "update-ca-certificates" },
	{ "etc/ca-certificates.conf", .why = "the same" },
	{ "etc/pki/tls/certs", .max = 8 * MIB, .why = "the same on Fedora and its kin" },
	{ "etc/pki/tls/cert.pem", .max = 8 * MIB, .why = "the same" },
	{ "etc/pki/ca-trust", .max = 8 * MIB, .why = "the same" },
	{ "etc/crypto-policies", .why = "OpenSSL and GnuTLS there refuse to start without it" },

	/* Package management: so that apt-get and dpkg go on where the host is. */
	{ "etc/apt", .flags = COPY_PUBLIC_KEYS, .why = "sources and their public keys" },
	{ "etc/dpkg", .why = "dpkg's settings and origins" },
	{ "etc/debconf.conf", .why = "package scripts ask through debconf" },
	{ "etc/ucf.conf", .why = "package scripts keep settings with ucf" },
	{ "etc/init.d", .why = "services of packages, started by hand in a box" },
	{ "etc/rc?.d", .why = "update-rc.d looks at them" },
	{ "etc/xml", .why = "package scripts register catalogs here" },
	{ "etc/sgml", .why = "the same" },
	{ "etc/emacs", .why = "the same for Emacs Lisp" },
	{ "var/lib/dpkg/*", .not_ = "status-old", .max = 64 * MIB, .flags = COPY_OPAQUE,
		.why = "what is installed" },
	{ "var/lib/apt/extended_states", .max = 64 * MIB, .flags = COPY_OPAQUE,
		.why = "which packages came by themselves" },
	{ "var/cache/debconf/templates.dat", .max = 64 * MIB, .flags = COPY_OPAQUE,
		.why = "questions (not answers) that package scripts share" },
	{ "var/lib/pam", .why = "pam-auth-update compares with it" },
	{ "var/lib/ucf", .why = "ucf compares with it" },
	{ "var/lib/python", .why = "package scripts of Python" },
	{ "var/lib/xml-core", .why = "package scripts of XML catalogs" },
	{ "var/lib/sgml-base", .why = "the same" },
	{ "var/lib/emacsen-common", .why = "the same" },
	{ "var/lib/dictionaries-common", .why = "the same" },
	{ "var/lib/shells.state", .why = "update-shells compares with it" },
	{ "var/lib/texmf", .max = 64 * MIB, .flags = COPY_OPAQUE, .why = "TeX's formats" },

	/* Shells and accounts. */
	{ "etc/profile", .why = "login shells" },
	{ "etc/profile.d", .why = "the same" },
	{ "etc/bash.bashrc", .why = "interactive shells" },
	{ "etc/bashrc", .why = "the same" },
	{ "etc/bash_completion.d", .why = "the same" },
	{ "etc/zsh*", .why = "the same" },
	{ "etc/csh*", .why = "the same" },
	{ "etc/fish", .why = "the same" },
	{ "etc/inputrc", .why = "the same" },
	{ "etc/terminfo", .why = "the same" },
	{ "etc/shells", .why = "chsh, su" },
	{ "etc/skel", .why = "useradd -m" },
	{ "etc/skel/*", .to = "home/user", .flags = COPY_TO_USER, .why = "the home of user" },
	{ "usr/share/base-files/dot.bashrc", .to = "root", .as = ".bashrc", .why = "that of root" },
	{ "usr/share/base-files/dot.profile", .to = "root", .as = ".profile", .why = "the same" },
	{ "etc/login.defs", .why = "su, useradd" },
	{ "etc/adduser.conf", .why = "package scripts add accounts" },
	{ "etc/deluser.conf", .why = "the same" },
	{ "etc/default/useradd", .why = "the same" },
	{ "etc/pam.conf", .why = "su, sudo, passwd" },
	{ "etc/pam.d", .why = "the same" },
	{ "etc/security", .why = "the same" },
	{ "etc/sudo.conf", .why = "sudo's plug-ins" },

	/* Names, languages, time. */
	{ "etc/host.conf", .why = "the resolver" },
	{ "etc/gai.conf", .why = "the same" },
	{ "etc/services", .why = "getservbyname()" },
	{ "etc/protocols", .why = "getprotobyname()" },
	{ "etc/networks", .why = "getnetbyname()" },
	{ "etc/rpc", .why = "getrpcbyname()" },
	{ "etc/ethertypes", .why = "network tools" },
	{ "etc/netconfig", .why = "libtirpc" },
	{ "etc/iproute2", .why = "ip" },
	{ "etc/locale.*", .why = "languages" },
	{ "etc/default/locale", .why = "the same" },
	{ "etc/default/keyboard", .why = "package scripts of the console" },
	{ "etc/default/console-setup", .why = "the same" },
	{ "etc/default/cacerts", .why = "package scripts of Java's certificates" },
	{ "etc/localtime", .why = "the time zone" },
	{ "etc/timezone", .why = "the same" },

	/* What system this is. */
	{ "etc/os-release", .why = "installers look here" },
	{ "etc/debian_version", .why = "the same" },
	{ "etc/lsb-release", .why = "the same" },
	{ "etc/*-release", .why = "the same" },
	{ "etc/issue", .why = "the same" },
	{ "etc/issue.net", .why = "the same" },

	/* Languages and tools whose files in /usr are links to /etc, or which refuse to start. */
	{ "etc/perl", .why = "perl" },
	{ "etc/python*", .why = "python" },
	{ "etc/java*", .why = "java: its files in /usr are links here" },
	{ "etc/.java", .why = "the same" },
	{ "etc/maven", .not_ = "settings.xml", .why = "mvn: the same" },
	{ "etc/ant", .why = "ant" },
	{ "etc/R", .why = "R: the same" },
	{ "etc/texmf", .why = "TeX: the same" },
	{ "etc/fpc*", .why = "fpc finds its units by it" },
	{ "etc/gnucobol", .why = "cobc: the same" },
	{ "etc/ghc", .why = "ghc" },
	{ "etc/gdb", .why = "gdb" },
	{ "etc/gprofng.rc", .why = "gprofng" },
	{ "etc/matplotlibrc", .why = "matplotlib: its file in /usr is a link here" },
	{ "etc/ImageMagick-*", .why = "its policy: without it more would be allowed" },
	{ "etc/OpenCL", .why = "drivers are listed here" },
	{ "etc/glvnd", .why = "the same" },
	{ "etc/fonts", .max = 4 * MIB, .why = "fontconfig" },
	{ "etc/X11/app-defaults", .why = "X programs" },
	{ "etc/X11/rgb.txt", .why = "the same" },
	{ "etc/X11/xkb", .why = "the same" },
	{ "etc/gtk-*", .why = "the same" },
	{ "etc/xdg", .why = "desktop defaults" },
	{ "etc/dbus-1", .why = "dbus-daemon" },
	{ "etc/vim", .why = "vim" },
	{ "etc/nanorc", .why = "nano" },
	{ "etc/groff", .why = "man" },
	{ "etc/manpath.config", .why = "the same" },
	{ "etc/man_db.conf", .why = "the same" },
	{ "etc/mime.types", .why = "types of files" },
	{ "etc/mailcap", .why = "the same" },
	{ "etc/magic*", .why = "the same" },
	{ "etc/mke2fs.conf", .why = "mkfs" },
	{ "etc/xattr.conf", .why = "which attributes cp keeps" },
	{ "etc/libaudit.conf", .why = "PAM" },
	{ "etc/bindresvport.blacklist", .why = "libtirpc" },
	{ "etc/rmt", .why = "tar" },
};

/* Directories; modes and owners as the distribution has them. A name of an account that the host
 * lacks means root. */
static const struct {
	const char *path;
	mode_t mode;
	const char *user, *group;
} dirs[] = {
	{ "dev", 0755 }, { "proc", 0555 }, { "sys", 0555 }, { "run", 0755 }, { "tmp", 01777 },
	{ "root", 0700 }, { "home", 0755 }, { "srv", 0755 }, { "mnt", 0755 }, { "media", 0755 },
	{ "opt", 0755 }, { "boot", 0755 }, { "usr", 0755 }, { "etc", 0755 },
	{ "etc/ssl/private", 0700 }, { "etc/sudoers.d", 0755 }, { "etc/default", 0755 },
	{ "etc/opt", 0755 }, { "etc/cron.d", 0755 }, { "etc/cron.daily", 0755 },
	{ "etc/cron.hourly", 0755 }, { "etc/cron.weekly", 0755 }, { "etc/cron.monthly", 0755 },
	{ "etc/logrotate.d", 0755 }, { "etc/sysctl.d", 0755 }, { "etc/tmpfiles.d", 0755 },
	/* deb-systemd-helper makes links here. */
	{ "etc/systemd/system", 0755 }, { "etc/systemd/user", 0755 },
	{ "var/backups", 0755 }, { "var/opt", 0755 }, { "var/spool", 0755 }, { "var/tmp", 01777 },
	{ "var/local", 02775, NULL, "staff" }, { "var/mail", 02775, NULL, "mail" },
	{ "var/cache/ldconfig", 0700 }, { "var/cache/debconf", 0755 },
	{ "var/cache/fontconfig", 0755 }, { "var/log/apt", 0755 },
	{ "var/cache/man", 0755, "man", "man" }, /* else each trigger of man-db tries to make it */
	{ "var/lib/misc", 0755 }, { "var/lib/dbus", 0755 }, { "var/lib/private", 0700 },
	{ "var/lib/systemd", 0755 }, { "var/lib/apt/periodic", 0755 },
	/* apt downloads as _apt, and refuses when these are not that account's. */
	{ "var/lib/apt/lists/partial", 0700, "_apt", NULL },
	{ "var/lib/apt/mirrors/partial", 0755 },
	{ "var/cache/apt/archives/partial", 0700, "_apt", NULL },
};

static const struct {
	const char *path, *target;
} links[] = {
	{ "var/run", "/run" },
	{ "var/lock", "/run/lock" },
	{ "var/spool/mail", "../mail" },
	{ "etc/mtab", "../proc/self/mounts" },
};

static const char sudo_rules[] =
	"# The account of the agent may do everything: the box is the wall, not this file.\n"
	"Defaults env_reset, !lecture, !fqdn\n"
	"root ALL=(ALL:ALL) NOPASSWD: ALL\n"
	"user ALL=(ALL:ALL) NOPASSWD: ALL\n";

/* Without id-mapped mounts the host's files belong to an owner whom the box does not have: they can
 * be replaced and removed, but not linked, and dpkg makes a link of each file that it replaces. */
static const char apt_own[] =
	"#!/bin/sh\n"
	"# apt-get names the packages that it is about to unpack. Of those that are upgraded, the\n"
	"# host's files become files of this box, because dpkg has to link them.\n"
	"while read -r deb; do\n"
	"\tpkg=$(dpkg-deb -f \"$deb\" Package) || continue\n"
	"\tarch=$(dpkg-deb -f \"$deb\" Architecture)\n"
	"\t{ dpkg -L \"$pkg:$arch\" || dpkg -L \"$pkg\"; } 2>/dev/null |\n"
	"\t\txargs -r -d '\\n' sh -c 'find \"$@\" -maxdepth 0 -type f -uid 65534 -print0' - \\\n"
	"\t\t\t2>/dev/null |\n"
	"\t\txargs -r -0 sh -c 'for f; do\n"
	"\t\t\tcp --preserve=mode,timestamps \"$f\" \"$f.den-own\" && mv -f \"$f.den-own\" \"$f\"\n"
	"\t\tdone' -\n"
	"done\n"
	"exit 0\n";

static const struct {
	const char *path;
	mode_t mode;
	const char *text;
	const char *only_with; /* a program of the host; NULL: always */
	enum { ALWAYS, NO_IDMAP, ONE_ID } when;
} generated[] = {
	/* The box's accounts are its files and its resolver is the gate: what else the host asks
	 * (a directory server, systemd) does not answer in here. */
	{ "etc/nsswitch.conf", 0644,
		"passwd: files\ngroup: files\nshadow: files\ngshadow: files\n"
		"hosts: files dns\nnetworks: files\nprotocols: files\nservices: files\n"
		"ethers: files\nrpc: files\n" },
	{ "etc/environment", 0644,
		"PATH=\"/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin\"\n" },
	{ "etc/fstab", 0644, "# The root of this box was mounted before it started.\n" },
	{ "etc/subuid", 0644, "" },
	{ "etc/subgid", 0644, "" },
	/* In a file of ours: /etc/sudoers belongs to the package, and one that is there before the
	 * package makes dpkg stop and ask. */
	{ "etc/sudoers.d/den", 0440, sudo_rules },
	{ "etc/sudoers", 0440,
		"Defaults secure_path=\"/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:"
		"/bin\"\n"
		"@includedir /etc/sudoers.d\n", "usr/bin/sudo" },
	/* An agent's apt-get has nobody to ask: keep what is there. */
	{ "etc/dpkg/dpkg.cfg.d/den", 0644, "force-confdef\nforce-confold\n", "usr/bin/dpkg" },
	/* With a single id there is no _apt to become. */
	{ "etc/apt/apt.conf.d/99den", 0644, "APT::Sandbox::User \"root\";\n", "usr/bin/apt-get",
		ONE_ID },
	{ "etc/apt/apt.conf.d/98den", 0644, "DPkg::Pre-Install-Pkgs {\"/etc/apt/den-own\";};\n",
		"usr/bin/apt-get", NO_IDMAP },
	{ "etc/apt/den-own", 0755, apt_own, "usr/bin/apt-get", NO_IDMAP },
};

/* clang-format on */

static int dirs_make(struct make *m, struct den_err *err)
{
	auto_fd home = -1;

	for (size_t i = 0; i < ARRAY_SIZE(dirs); i++) {
		unsigned uid = 0, gid = 0;
		auto_fd fd = -1;

		if (dirs[i].user)
			uid = account_id(m->users, m->n_users, dirs[i].user, 0);
		if (dirs[i].group)
			gid = account_id(m->groups, m->n_groups, dirs[i].group, 0);
		if (make_dir(m, dirs[i].path, &fd, err) < 0 ||
			make_own(m, m->dst, dirs[i].path, dirs[i].path, uid, gid, dirs[i].mode,
				err) < 0)
			return -1;
	}
	for (size_t i = 0; i < ARRAY_SIZE(links); i++)
		if (symlinkat(links[i].target, m->dst, links[i].path) < 0)
			return den_fail_sys(err, errno, "make link '%s'", links[i].path);
	if (make_dir(m, "home/user", &home, err) < 0)
		return -1;
	return make_own(m, m->dst, "home/user", "home/user", BOX_UID, BOX_UID, 0755, err);
}

static int generated_make(struct make *m, struct den_err *err)
{
	for (size_t i = 0; i < ARRAY_SIZE(generated); i++) {
		auto_free char *dir = mem_strndup(generated[i].path,
			(size_t)(strrchr(generated[i].path, '/') - generated[i].path));
		auto_fd fd = -1;

		if (generated[i].only_with &&
			faccessat(m->src, generated[i].only_with, F_OK, AT_SYMLINK_NOFOLLOW) < 0)
			continue;
		if ((generated[i].when != ALWAYS && m->idmap) ||
			(generated[i].when == ONE_ID && m->id_range))
			continue;
		if (make_dir(m, dir, &fd, err) < 0 ||
			make_file(m, generated[i].path, generated[i].text,
				strlen(generated[i].text), 0, 0, generated[i].mode, err) < 0)
			return -1;
	}
	return 0;
}

int table_make(struct make *m, struct den_err *err)
{
	if (fchmod(m->dst, 0755) < 0 || (m->idmap && fchown(m->dst, 0, 0) < 0))
		return den_fail_sys(err, errno, "set owner of the tree");
	if (dirs_make(m, err) < 0 || generated_make(m, err) < 0)
		return -1;
	/* Last: what was made above is there already and stays (copy_entry() does not replace). */
	for (size_t i = 0; i < ARRAY_SIZE(rules); i++)
		if (copy_by_rule(m, &rules[i], err) < 0)
			return den_wrap(err, "copy '/%s'", rules[i].from);
	return 0;
}
