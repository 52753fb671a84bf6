//! A network of its own that loses packets: what a device has behind a bad radio or an overloaded line.

use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};

use crate::{in_namespaces, text};

/// Programs in a network of their own, which reach each other on loopback, in packets as on Ethernet, and nobody else. Some of all
/// packets get lost, at random, and TCP has to make up for it. It ends when dropped, but for programs that still run there.
#[derive(Debug)]
pub struct LossyLink {
    /// What keeps the network.
    holder: Child,
}

impl LossyLink {
    /// So many of a hundred packets get lost.
    ///
    /// # Panics
    /// If this machine can't have such a network.
    pub fn losing(percent: u32) -> Self {
        let rule = format!("iptables -A INPUT -m statistic --mode random --probability 0.{percent:02} -j DROP");
        let script =
            format!("ip link set lo mtu 1400 gso_max_segs 1 up && {rule} && echo ready && exec sleep infinity");
        let mut holder = Command::new("unshare");
        holder.args(["--user", "--map-root-user", "--net", "sh", "-c", &script]);
        let mut holder = holder.stdin(Stdio::null()).stdout(Stdio::piped()).spawn().expect("unshare is there");
        let mut said = String::new();
        let out = holder.stdout.take().expect("piped");
        BufReader::new(out).read_line(&mut said).expect("it is read");
        assert_eq!(said, "ready\n", "a network of its own, with ip and iptables");
        Self { holder }
    }

    /// The same program with the same arguments and variables, in this network; the rest of the command is to be said anew.
    pub fn inside(&self, command: &Command) -> Command {
        in_namespaces(self.holder.id(), &["--user", "--net", "--preserve-credentials"], command)
    }

    /// How many packets got lost.
    pub fn lost(&self) -> u64 {
        let mut list = Command::new("iptables");
        list.args(["--list", "INPUT", "--numeric", "--verbose", "--exact"]);
        let said = text(self.inside(&list).output().expect("iptables runs"));
        let rule = said.lines().find(|line| line.contains("DROP  ")).expect("the rule");
        rule.split_whitespace().next().and_then(|count| count.parse().ok()).expect("a number of packets")
    }
}

impl Drop for LossyLink {
    fn drop(&mut self) {
        let _ = self.holder.kill();
        let _ = self.holder.wait();
    }
}
