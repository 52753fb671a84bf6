//! What lighttpd is told.

use std::fmt::Write;
use std::path::Path;

use super::{Answer, Options};

/// The configuration of the host below `dir`.
pub(super) fn text(dir: &Path, port: u16, options: &Options) -> String {
    let dir = dir.display();
    let mut text = format!(
        r#"server.bind = "127.0.0.1"
server.port = {port}
server.document-root = "{dir}/repositories"
server.upload-dirs = ("{dir}/tmp")
server.errorlog = "{dir}/error.log"
server.breakagelog = "{dir}/cgi.log"
server.modules = ("mod_openssl", "mod_auth", "mod_authn_file", "mod_setenv", "mod_alias", "mod_cgi", "mod_accesslog")
accesslog.filename = "{dir}/access.log"
accesslog.format = "%m %U %s %I %O"
server.max-keep-alive-requests = 100000
server.max-keep-alive-idle = 60
ssl.engine = "enable"
ssl.pemfile = "{dir}/tls/server.pem"
"#
    );
    if options.client_certificate {
        let _ = writeln!(text, "ssl.verifyclient.activate = \"enable\"\nssl.verifyclient.enforce = \"enable\"");
        let _ = writeln!(text, "ssl.verifyclient.ca-file = \"{dir}/tls/ca.pem\"");
    }
    if options.account.is_some() {
        let _ = writeln!(text, "auth.backend = \"plain\"\nauth.backend.plain.userfile = \"{dir}/accounts\"");
        let rule = r#""method" => "basic", "realm" => "foreign", "require" => "valid-user""#;
        let _ = writeln!(text, "auth.require = (\"/\" => ({rule}))");
    }
    text.push_str(&match options.answer {
        Some(_) => cgi(&format!("{dir}/answer")),
        None => cgi(&backend()),
    });
    if options.oldest_protocol {
        let _ = writeln!(text, "setenv.set-request-header = (\"Git-Protocol\" => \"\")");
    }
    // A header `Git-Protocol` reaches it as HTTP_GIT_PROTOCOL, which it understands since Git 2.34.
    let _ = writeln!(
        text,
        "setenv.set-environment = (\"GIT_PROJECT_ROOT\" => \"{dir}/repositories\", \"GIT_HTTP_EXPORT_ALL\" => \"1\",\n\
         \x20 \"GIT_CONFIG_NOSYSTEM\" => \"1\", \"GIT_CONFIG_GLOBAL\" => \"/dev/null\", \"LC_ALL\" => \"C\",\n\
         \x20 \"PATH\" => \"{}\")",
        std::env::var("PATH").unwrap_or_default(),
    );
    text
}

/// Everything is answered by one program.
fn cgi(program: &str) -> String {
    format!("alias.url = (\"/\" => \"{program}/\")\ncgi.assign = (\"\" => \"\")\n")
}

/// Where stock Git keeps its CGI program.
fn backend() -> String {
    let output = std::process::Command::new("git").arg("--exec-path").output().expect("git is installed");
    format!("{}/git-http-backend", String::from_utf8_lossy(&output.stdout).trim())
}

/// A CGI program with one answer. The request's body is read first, as servers do.
pub(super) fn script(answer: &Answer) -> String {
    let mut text = format!("#!/bin/sh\ncat >/dev/null\ncat <<'END'\nStatus: {}\n", answer.status);
    for header in &answer.headers {
        let _ = writeln!(text, "{header}");
    }
    let _ = write!(text, "\n{}\nEND\n", answer.body);
    text
}
