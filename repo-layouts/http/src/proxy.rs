//! What stands between here and a host.

use std::env;

use crate::{SettingsError, Source};

/// Where the environment names a proxy, the first that is set counts; `HTTP_PROXY` is for hosts without TLS, which are
/// asked directly.
const PROXIES: [&str; 4] = ["HTTPS_PROXY", "https_proxy", "ALL_PROXY", "all_proxy"];

/// Where the environment names hosts that are asked without it.
const EXCEPT: [&str; 2] = ["NO_PROXY", "no_proxy"];

/// A proxy that is asked to `CONNECT`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Proxy {
    /// `http://host[:port]` or `https://host[:port]`.
    pub url: String,
    /// Its user and where the password comes from.
    pub account: Option<(String, Source)>,
    /// Hosts that are reached without it: names, `.suffix`, `prefix.`, or `*`.
    pub except: Vec<String>,
}

impl Proxy {
    /// The proxy for a transport, with these hosts excepted, too.
    pub(crate) fn open(&self, direct: &[String]) -> Result<ureq::Proxy, SettingsError> {
        let (scheme, rest) = self.url.split_once("://").ok_or(SettingsError::Proxy)?;
        let protocol = match scheme {
            "http" => ureq::ProxyProtocol::Http,
            "https" => ureq::ProxyProtocol::Https,
            _ => return Err(SettingsError::Proxy),
        };
        let rest = rest.trim_end_matches('/');
        let (host, port) = match rest.rsplit_once(':').filter(|(_, port)| port.bytes().all(|c| c.is_ascii_digit())) {
            Some((host, port)) => (host, Some(port.parse::<u16>().map_err(|_| SettingsError::Proxy)?)),
            None => (rest, None),
        };
        if host.is_empty() || host.contains(['@', '/', '?', '#']) {
            return Err(SettingsError::Proxy);
        }
        let mut builder = ureq::Proxy::builder(protocol).host(host);
        builder = port.into_iter().fold(builder, |builder, port| builder.port(port));
        if let Some((user, password)) = &self.account {
            builder = builder.username(user).password(&password.read()?);
        }
        builder = self.except.iter().chain(direct).fold(builder, |builder, host| builder.no_proxy(host));
        builder.build().map_err(|_| SettingsError::Proxy)
    }
}

/// The proxy that the environment names, if it is one that is asked to `CONNECT`. A name in `NO_PROXY` stands for all
/// below it, too.
pub(crate) fn of_environment(direct: &[String]) -> Option<ureq::Proxy> {
    let first = |names: &[&str]| names.iter().find_map(|name| env::var(name).ok().filter(|value| !value.is_empty()));
    of_texts(&first(&PROXIES)?, &first(&EXCEPT).unwrap_or_default(), direct)
}

fn of_texts(proxy: &str, except: &str, direct: &[String]) -> Option<ureq::Proxy> {
    let proxy = ureq::Proxy::new(proxy).ok()?;
    if !matches!(proxy.protocol(), ureq::ProxyProtocol::Http | ureq::ProxyProtocol::Https) {
        return None;
    }
    let mut builder = ureq::Proxy::builder(proxy.protocol()).host(proxy.host()).port(proxy.port());
    builder = proxy.username().into_iter().fold(builder, |builder, user| builder.username(user));
    builder = proxy.password().into_iter().fold(builder, |builder, password| builder.password(password));
    for name in except.split(',').map(str::trim).filter(|name| !name.is_empty()) {
        builder = builder.no_proxy(name);
        if !name.starts_with(['.', '*']) {
            builder = builder.no_proxy(&format!(".{name}"));
        }
    }
    builder = direct.iter().fold(builder, |builder, host| builder.no_proxy(host));
    builder.build().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_proxy_has_a_scheme_a_host_and_no_credential() {
        let open =
            |url: &str| Proxy { url: url.to_owned(), account: None, except: vec!["localhost".to_owned()] }.open(&[]);
        for url in ["http://proxy.example:3128", "https://10.0.0.1", "http://proxy/"] {
            assert!(open(url).is_ok(), "{url}");
        }
        for url in
            ["proxy:3128", "socks5://proxy", "http://", "http://u:p@proxy", "http://proxy/path", "http://p:99999"]
        {
            assert!(matches!(open(url), Err(SettingsError::Proxy)), "{url}");
        }
    }

    #[test]
    fn the_environment_names_a_proxy_its_account_and_exceptions() {
        let direct = ["registry.plant.local".to_owned()];
        let proxy =
            of_texts("http://line%202:p%40ss@proxy.example:3128", "corp.example, .lan,10.0.0.1", &direct).unwrap();
        assert_eq!((proxy.host(), proxy.port()), ("proxy.example", 3128));
        assert_eq!((proxy.username(), proxy.password()), (Some("line 2"), Some("p@ss")));
        let goes_past = |host: &str| proxy.is_no_proxy(&format!("https://{host}/").parse().unwrap());
        for host in ["corp.example", "a.corp.example", "a.lan", "10.0.0.1", "registry.plant.local"] {
            assert!(goes_past(host), "{host}");
        }
        assert!(!goes_past("example") && !goes_past("notcorp.example"));
        assert!(of_texts("proxy.example:3128", "", &[]).is_some());
        assert!(of_texts("socks5://proxy.example", "", &[]).is_none() && of_texts("", "", &[]).is_none());
    }
}
