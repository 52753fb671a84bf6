//! Who may do what, decided from names alone: what an account may not see costs the same time and the same words as what
//! doesn't exist.

use repo_model::DeviceId;

use crate::accounts::Role;
use crate::wire::path::{Action, Service, Target};

/// What of an account counts here.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Who<'a> {
    pub(crate) role: Role,
    /// Exactly for a device's account.
    pub(crate) device: Option<&'a DeviceId>,
    /// Exactly for an account of a site.
    pub(crate) devices: &'a [DeviceId],
}

/// Whether a request is served.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Access {
    Granted,
    /// The repository may be seen, but this may not be done with it. The text says why.
    Forbidden(&'static str),
    /// For this account there is no such thing.
    Hidden,
}

/// Decides about one request to a repository.
pub(crate) fn decide(who: Who<'_>, target: Target<'_>, action: Action) -> Access {
    if !sees(who, target) {
        return Access::Hidden;
    }
    let writes = matches!(action, Action::Call(Service::ReceivePack) | Action::InfoRefs(Service::ReceivePack));
    match (who.role, target) {
        (_, Target::Control | Target::Fleet) if matches!(action, Action::Wait(_)) => Access::Hidden,
        _ if !writes => Access::Granted,
        (Role::Device | Role::Site, Target::Device(_)) | (Role::Operator, Target::Fleet) => Access::Granted,
        (_, Target::Fleet) => Access::Forbidden("only operators may push to the fleet repository"),
        (_, Target::Control) => Access::Forbidden("only the publisher writes its ledger"),
        (_, Target::Device(_)) => {
            Access::Forbidden("only the device itself, and persons of its site, may push to its repository")
        }
    }
}

fn sees(who: Who<'_>, target: Target<'_>) -> bool {
    match (who.role, target) {
        (Role::Device, Target::Device(name)) => who.device.is_some_and(|device| device.repository_name() == name),
        (Role::Site, Target::Device(name)) => who.devices.iter().any(|device| device.repository_name() == name),
        (Role::Device | Role::Site, _) => false,
        (Role::Auditor | Role::Operator, _) => true,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_role_may_do_what_is_its_own() {
        use Access::{Forbidden, Granted, Hidden};
        let device: DeviceId = "Press/01".parse().unwrap();
        let of_site = ["press-07".parse().unwrap(), device.clone()];
        let who = |role| Who {
            role,
            device: matches!(role, Role::Device).then_some(&device),
            devices: if role == Role::Site { &of_site } else { &[] },
        };
        let name = device.repository_name();
        let targets = [Target::Device(&name), Target::Device("press-02"), Target::Fleet, Target::Control];
        let read = [Action::InfoRefs(Service::UploadPack), Action::Call(Service::UploadPack)];
        let write = [Action::InfoRefs(Service::ReceivePack), Action::Call(Service::ReceivePack)];
        for (role, reads, writes) in [
            (Role::Device, [Granted, Hidden, Hidden, Hidden], [Granted, Hidden, Hidden, Hidden]),
            (Role::Site, [Granted, Hidden, Hidden, Hidden], [Granted, Hidden, Hidden, Hidden]),
            (Role::Auditor, [Granted; 4], [Forbidden(""); 4]),
            (Role::Operator, [Granted; 4], [Forbidden(""), Forbidden(""), Granted, Forbidden("")]),
        ] {
            for (actions, expected) in [(read, reads), (write, writes)] {
                for (action, (target, expected)) in
                    actions.iter().flat_map(|action| targets.iter().zip(expected).map(move |pair| (action, pair)))
                {
                    let found = decide(who(role), *target, *action);
                    let same = std::mem::discriminant(&found) == std::mem::discriminant(&expected);
                    assert!(same, "{role:?} {target:?} {action:?}: {found:?}");
                }
            }
        }
    }
}
