//! How helm is called.

use std::sync::Arc;
use std::time::Duration;

use super::settings::HelmSettings;
use crate::runtimes::client::{Client, Tool, environment};

/// How much longer than its own `--timeout` helm may take to say what became of it.
pub(super) const GRACE: Duration = Duration::from_secs(15);

/// Says that its API server can't be talked to in these words from Helm 3.13 to 4.3.
pub(super) static HELM: Tool = Tool {
    name: "helm",
    stdout_limit: 64 << 20,
    unavailable: &[
        "Kubernetes cluster unreachable",
        "connection refused",
        "no such host",
        "no route to host",
        "network is unreachable",
        "connection reset by peer",
        "http2: client connection lost",
        "TLS handshake timeout",
        "unexpected EOF",
        "etcdserver:",
        "the server is currently unable to handle the request",
        "the server has asked for the client to provide credentials",
    ],
    probe: &["list", "--max", "1", "--short"],
};

/// A helm client for one cluster.
pub(super) fn client(settings: &HelmSettings) -> Client {
    let kubeconfig = settings.kubeconfig.clone().into_os_string();
    Client {
        tool: &HELM,
        program: settings.program.clone(),
        env: environment([
            ("PATH", settings.path.clone().into()),
            ("HOME", settings.home.clone().into_os_string()),
            ("TMPDIR", settings.home.clone().into_os_string()),
        ]),
        first: Vec::new(),
        always: ["--kubeconfig".into(), kubeconfig, "--kube-context".into(), settings.context.clone().into()].into(),
        ends: Arc::default(),
    }
}
