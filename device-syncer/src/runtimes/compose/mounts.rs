//! Whether a container could lead another one's mount elsewhere.
//!
//! The engine looks for the source of a mount by its name, at each start anew. Whoever may write in a directory above it
//! can put a link there, and the next start mounts whatever the link names, the host's root for one. So a source strictly
//! below anything that any container may write is refused, and so is one that is reached over a link. Two containers may
//! well write in the same directory: a mount's own root can't be replaced from inside of it.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsString;
use std::fs;
use std::path::{Component as Part, Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};

use repo_model::{IntoMap, IntoSet};

use serde::Deserialize;

use super::docker::DOCKER;
use super::engine::{self, BATCH, Details, Engine, Listed, Looked, Volume, vanished};
use super::project::Project;
use super::resolved::{Resolved, inside, items};
use super::{ComposeRuntime, Prepared, files};
use crate::runtimes::client::Call;
use crate::runtimes::{RuntimeError, files_failed};

/// How long a container that stands in the way may take to end, in seconds.
const GRACE: &str = "10";
/// File systems of which even to ask for a name may last for ever, for their server is elsewhere.
const REMOTE: &[&str] = &["9p", "afs", "autofs", "ceph", "cifs", "fuse", "lustre", "nfs", "smb"];
/// How many links are followed on the way to one file, as Linux does.
const LINKS: usize = 40;

/// A path of the host that a container has, or is to have.
#[derive(Debug, Clone)]
struct Mount {
    /// The service or container, for messages.
    whose: String,
    /// As the compose file has it, for messages.
    path: PathBuf,
    writes: bool,
    /// Every name that is looked up on the way, those behind links included.
    names: BTreeSet<PathBuf>,
    /// Where it leads once every link on the way was followed.
    real: PathBuf,
}

/// What a container has of the host.
#[derive(Debug, Deserialize)]
struct Mounts {
    #[serde(rename = "Mounts")]
    all: Vec<engine::Mount>,
}

impl Details for Mounts {
    const TEMPLATE: &str = concat!(
        r#"{"Id":{{json .ID}},"Mounts":[{{range $n, $it := .Mounts}}{{if $n}},{{end}}"#,
        r#"{"Source":{{json (printf "%.4096s" $it.Source)}},"RW":{{json $it.RW}}}{{end}}]}"#,
    );
}

/// Every mount of a document that one of its own services could lead elsewhere. `files` is where the archive's own files
/// lie.
pub(super) fn denied(resolved: &Resolved, files: &Path) -> Vec<String> {
    let mounts = of_document(resolved, "", &remote());
    clashes(&mounts, &mounts, files)
}

/// The mounts of projects that were checked and aren't written yet, by project: two that are applied at once see each other.
#[derive(Debug, Default)]
pub(super) struct Claims(Mutex<BTreeMap<String, Vec<Mount>>>);

/// Ends a claim when it is dropped: what was applied is on the disk then.
pub(super) struct Claim<'a> {
    claims: &'a Claims,
    project: &'a str,
}

impl Claims {
    fn lock(&self) -> MutexGuard<'_, BTreeMap<String, Vec<Mount>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Claim<'_> {
    fn drop(&mut self) {
        self.claims.lock().remove(self.project);
    }
}

impl ComposeRuntime {
    /// Refuses mounts that containers of others could lead elsewhere, and the other way round, and claims those that are
    /// left. Gives the ids of the project's own containers that could: they have to end before anything starts.
    pub(super) fn check_neighbours<'a>(
        &'a self,
        prepared: &'a Prepared,
    ) -> Result<(Vec<String>, Claim<'a>), RuntimeError> {
        let project = &prepared.component.project;
        // Until this one is claimed, no other one is checked.
        let mut claims = self.lasting.claims.lock();
        let files = Project::new(&self.settings.projects_dir, project).files();
        let remote = remote();
        let wanted = of_document(&prepared.resolved, "", &remote);
        let applied = self.on_disk(&remote)?;
        let mut others = volumes(&self.engine, &remote)?;
        let mut in_the_way = Vec::new();
        for (container, mounts) in containers(&self.engine)? {
            let of = &container.labels().project;
            let own = of == project;
            let mounts = match (mounts, applied.get(of)) {
                (Ok(mounts), _) => of_container(&container, mounts.all, &remote),
                (Err(_), Some(_)) if !own => continue,
                (Err(_), Some(document)) => document.clone(),
                (Err(_), None) => of_container(&container, self.engine.mounts(&container.id)?, &remote),
            };
            if !own {
                others.extend(mounts);
            } else if !(clashes(&wanted, &mounts, &files).is_empty() && clashes(&mounts, &wanted, &files).is_empty()) {
                in_the_way.push(container.id);
            }
        }
        others.extend(applied.into_iter().filter(|(name, _)| name != project).flat_map(|(_, mounts)| mounts));
        others.extend(claims.values().flatten().cloned());
        let mut reasons = clashes(&wanted, &others, &files);
        reasons.extend(clashes(&others, &wanted, &files));
        let retry = format!("; after that `device-syncer retry {}`", prepared.component.deployment_name);
        reasons.iter_mut().for_each(|reason| reason.push_str(&retry));
        refuse(prepared, reasons)?;
        claims.insert(project.clone(), of_document(&prepared.resolved, &format!(" of `{project}`"), &remote));
        Ok((in_the_way, Claim { claims: &self.lasting.claims, project }))
    }

    /// What the projects on this device have by what was applied last, also while their containers are away.
    fn on_disk(&self, remote: &BTreeSet<PathBuf>) -> Result<BTreeMap<String, Vec<Mount>>, RuntimeError> {
        let mut found = BTreeMap::new();
        for (name, _) in Project::list(&self.settings.projects_dir)? {
            // One that was cut off before it was written has nothing yet.
            if let Some(document) = Project::new(&self.settings.projects_dir, &name).document() {
                let mounts = of_document(&document, &format!(" of `{name}`"), remote);
                found.insert(name, mounts);
            }
        }
        Ok(found)
    }

    /// Refuses mounts that are reached over a link, but for links on the way to what the site's policy names. Before the
    /// archive's files are written (`filled`), links are fine where they are to be; afterwards what is missing of the
    /// project's own is made.
    pub(super) fn check_links(&self, prepared: &Prepared, filled: bool) -> Result<(), RuntimeError> {
        let files = Project::new(&self.settings.projects_dir, &prepared.component.project).files();
        let mut reasons = Vec::new();
        for (whose, path, _) in sources(&prepared.resolved) {
            let (root, link) = if let Some(rest) = inside(&files, path) {
                let find = if filled { files::make_mount } else { files::link_in };
                let brings = |link: &String| {
                    prepared.archive.dirs().contains(link) || prepared.archive.files().contains_key(link)
                };
                (&files, find(&files, &rest).map(|link| link.filter(|link| filled || !brings(link))))
            } else {
                let allowed = self.settings.policy.host_paths.iter().filter(|host| inside(&host.path, path).is_some());
                let Some(host) = allowed.max_by_key(|host| host.path.as_os_str().len()) else { continue };
                (&host.path, files::link_in(&host.path, &inside(&host.path, path).unwrap_or_default()))
            };
            if let Some(link) = link.map_err(files_failed("look at", Path::new(path)))? {
                let (path, link) = (shown(Path::new(path), &files), shown(&root.join(link), &files));
                reasons.push(format!(
                    "{whose} gets `{path}`, and a container may have put a link to anything at `{link}`: remove that, \
                     then `device-syncer retry {}`",
                    prepared.component.deployment_name
                ));
            }
        }
        refuse(prepared, reasons)
    }

    /// Ends and removes containers of the project's own; `up` makes those anew that are wanted.
    pub(super) fn end(
        &self,
        ids: &[String],
        prepared: &Prepared,
        cancel: &dyn Fn() -> bool,
    ) -> Result<(), RuntimeError> {
        for ids in ids.chunks(BATCH) {
            for verb in [["stop", "-t", GRACE].as_slice(), &["rm", "--force"]] {
                let args = verb.iter().copied().chain(ids.iter().map(String::as_str)).map(OsString::from).collect();
                let timeout = prepared.component.timeout;
                let call = Call { args, timeout, redactor: &prepared.redactor, parameters: &[], cancel };
                let output = self.docker.run(call)?;
                if !output.status.success() && !vanished(&output.stderr) {
                    return Err(self.docker.failure(&output, |reason| DOCKER.unavailable(reason, None)));
                }
            }
        }
        Ok(())
    }
}

fn refuse(prepared: &Prepared, reasons: Vec<String>) -> Result<(), RuntimeError> {
    if reasons.is_empty() {
        return Ok(());
    }
    let reasons = reasons.iter().map(|reason| prepared.redactor.clean(reason)).collect();
    Err(RuntimeError::PolicyDenied { project: prepared.component.project.clone(), reasons })
}

/// One sentence for each of `inner` that lies below something that one of `outer` may write.
fn clashes(inner: &[Mount], outer: &[Mount], files: &Path) -> Vec<String> {
    // Whoever may write in the root has the host already.
    let root = Path::new("/");
    let writable = outer.iter().filter(|mount| mount.writes && mount.real != root);
    let writable: BTreeMap<&Path, &Mount> =
        writable.flat_map(|mount| [(mount.path.as_path(), mount), (mount.real.as_path(), mount)]).into_map();
    let above = |name: &PathBuf| name.ancestors().skip(1).find_map(|path| writable.get(path).copied());
    let sentence = |inner: &Mount| {
        let outer = inner.names.iter().find_map(above)?;
        Some(format!(
            "{} gets `{}`, which lies in `{}`, where {} may write and could put a link to anything of the host: mount \
             two directories side by side, or the outer one read-only",
            inner.whose,
            shown(&inner.path, files),
            shown(&outer.path, files),
            outer.whose
        ))
    };
    inner.iter().filter_map(sentence).collect()
}

/// The archive's own files as the archive names them.
fn shown(path: &Path, files: &Path) -> String {
    path.strip_prefix(files).map_or_else(|_| path.display().to_string(), |own| format!("./{}", own.display()))
}

/// Everything of the host that a document's containers get, devices too.
fn of_document(resolved: &Resolved, of: &str, remote: &BTreeSet<PathBuf>) -> Vec<Mount> {
    let mut all = sources(resolved);
    for (name, service) in resolved.section("services") {
        let devices = items(&service["devices"]).filter_map(|device| device["source"].as_str());
        all.extend(devices.map(|path| (format!("service `{name}`"), path, false)));
    }
    let mount = |(whose, path, writes): (String, &str, bool)| Mount::new(whose + of, path.into(), writes, remote);
    all.into_iter().map(mount).collect()
}

/// The sources of a document's mounts: whose it is, the path, and whether it is mounted for writing.
fn sources(resolved: &Resolved) -> Vec<(String, &str, bool)> {
    let mut all = Vec::new();
    for (name, service) in resolved.section("services") {
        let binds = items(&service["volumes"]).filter(|mount| mount["type"] == "bind");
        let paths = binds.filter_map(|mount| Some((mount["source"].as_str()?, mount["read_only"] != true)));
        all.extend(paths.map(|(path, writes)| (format!("service `{name}`"), path, writes)));
    }
    for (kind, word) in [("configs", "config"), ("secrets", "secret")] {
        let files = resolved.section(kind).filter_map(|(name, it)| Some((name, it["file"].as_str()?)));
        all.extend(files.map(|(name, path)| (format!("{word} `{name}`"), path, false)));
    }
    all
}

/// Every container of the engine, also those that aren't ours, with its mounts or why the engine can't show them.
fn containers(engine: &Engine) -> Result<Vec<(Listed, Looked<Mounts>)>, RuntimeError> {
    let listed = engine.list(&[])?;
    let ids: Vec<&str> = listed.iter().map(|container| &*container.id).collect();
    let mut mounts = engine.inspect(&ids)?;
    Ok(listed.into_iter().filter_map(|it| mounts.remove(&it.id).map(|mounts| (it, mounts))).collect())
}

fn of_container(container: &Listed, mounts: Vec<engine::Mount>, remote: &BTreeSet<PathBuf>) -> Vec<Mount> {
    let labels = container.labels();
    let whose = if labels.project.is_empty() || labels.service.is_empty() {
        format!("container `{}`", container.names().collect::<Vec<_>>().join(","))
    } else {
        format!("service `{}` of `{}`", labels.service, labels.project)
    };
    let real = mounts.into_iter().filter(|mount| mount.source.is_absolute());
    real.map(|mount| Mount::new(whose.clone(), mount.source, mount.writes, remote)).collect()
}

/// The directories that volumes show, where the site made such volumes: whoever has the volume writes there.
fn volumes(engine: &Engine, remote: &BTreeSet<PathBuf>) -> Result<Vec<Mount>, RuntimeError> {
    let mount = |volume: Volume| {
        let whose = format!("volume `{}`", volume.name);
        volume.shows().map(|device| Mount::new(whose, device, true, remote))
    };
    Ok(engine.local_volumes()?.into_iter().filter_map(mount).collect())
}

impl Mount {
    fn new(whose: String, path: PathBuf, writes: bool, remote: &BTreeSet<PathBuf>) -> Self {
        let (names, real) = look_up(&path, remote);
        Self { whose, path, writes, names, real }
    }
}

/// Where the file systems are mounted whose server may be gone; never the root.
fn remote() -> BTreeSet<PathBuf> {
    let mounted = fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
    let place = |line: &str| {
        let (place, kind) = line.split_once(" - ")?;
        let remote = REMOTE.iter().any(|name| kind.starts_with(name));
        remote.then(|| place.split(' ').nth(4)).flatten().map(|path| PathBuf::from(path.replace("\\040", " ")))
    };
    mounted.lines().filter_map(place).filter(|path| path.parent().is_some()).into_set()
}

/// Every name that is looked up on the way to an absolute path, and where it ends. What isn't there, or lies at or below
/// one of `remote`, is taken as it is written.
fn look_up(path: &Path, remote: &BTreeSet<PathBuf>) -> (BTreeSet<PathBuf>, PathBuf) {
    let (mut names, mut at, mut links) = (BTreeSet::new(), PathBuf::from("/"), LINKS);
    let parts = |path: &Path| path.components().rev().map(|part| part.as_os_str().to_owned()).collect::<Vec<_>>();
    let mut rest = parts(path);
    while let Some(part) = rest.pop() {
        match Path::new(&part).components().next() {
            Some(Part::RootDir) => at = PathBuf::from("/"),
            Some(Part::ParentDir) => drop(at.pop()),
            Some(Part::Normal(name)) => {
                let next = at.join(name);
                names.insert(next.clone());
                let local = !next.ancestors().any(|place| remote.contains(place));
                match (local && links > 0).then(|| fs::read_link(&next)) {
                    Some(Ok(target)) => {
                        links -= 1;
                        rest.extend(parts(&target));
                    }
                    _ => at = next,
                }
            }
            _ => {}
        }
    }
    (names, at)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use serde_json::{Value, json};

    use super::*;

    fn refused(document: Value) -> Vec<String> {
        denied(&Resolved::parse(document.to_string().as_bytes()).unwrap(), Path::new("/p/files"))
    }

    fn services(a: &[(&str, bool)], b: &[(&str, bool)]) -> Value {
        let volumes = |binds: &[(&str, bool)]| -> Value {
            let bind =
                |(path, read_only): &(&str, bool)| json!({"type": "bind", "source": path, "read_only": read_only});
            json!({"volumes": binds.iter().map(bind).collect::<Vec<_>>()})
        };
        json!({"services": {"a": volumes(a), "b": volumes(b)}})
    }

    #[test]
    fn what_lies_below_something_that_a_container_may_write_is_refused_for_whoever_gets_it() {
        for (a, b) in [
            (vec![("/p/files/data", false)], vec![("/p/files/data/sub", false)]),
            (vec![("/p/files/data", false)], vec![("/p/files/data/deep/er", true)]),
            (vec![("/p/files", false)], vec![("/p/files/conf", true)]),
            (vec![("/srv/data", false), ("/srv/data/x", true)], vec![]),
            (vec![("/srv", false)], vec![("/srv/data", true)]),
        ] {
            assert_eq!(refused(services(&a, &b)).len(), 1, "{a:?} {b:?}");
            assert_eq!(refused(services(&b, &a)).len(), 1, "{b:?} {a:?}");
        }
        let [reason] = &refused(services(&[("/p/files", false)], &[("/p/files/conf", true)]))[..] else { panic!() };
        for word in ["service `a`", "service `b`", "`./conf`", "`./`", "side by side", "read-only"] {
            assert!(reason.contains(word), "{word} in {reason}");
        }
        for (kind, whose) in [("configs", "config `c`"), ("secrets", "secret `c`")] {
            let mut document = services(&[("/p/files/data", false)], &[]);
            document[kind] = json!({"c": {"file": "/p/files/data/c.txt"}});
            assert!(refused(document)[0].starts_with(whose), "{kind}");
        }
        let mut document = services(&[("/dev/shared", false)], &[]);
        document["services"]["b"]["devices"] = json!([{"source": "/dev/shared/tty", "target": "/dev/tty"}]);
        assert_eq!(refused(document).len(), 1);
    }

    #[test]
    fn what_nobody_can_replace_is_allowed() {
        for (a, b) in [
            (vec![("/p/files/data", false)], vec![("/p/files/data", false)]),
            (vec![("/p/files/data", false)], vec![("/p/files/conf", true), ("/p/files/database", false)]),
            (vec![("/p/files", true)], vec![("/p/files/data", false)]),
            (vec![("/srv/data", true)], vec![("/srv/data/x", false)]),
            // It has the host already.
            (vec![("/", false)], vec![("/p/files/conf", true)]),
        ] {
            assert_eq!(refused(services(&a, &b)), Vec::<String>::new(), "{a:?} {b:?}");
        }
    }

    #[test]
    fn another_way_to_the_same_directory_is_no_way_around() {
        let dir = tempfile::tempdir().unwrap();
        let path = |name: &str| dir.path().join(name).display().to_string();
        repo_git::durable::create_dir_all(Path::new(&path("real/deep")), 0o755).unwrap();
        repo_git::durable::create_dir_all(Path::new(&path("middle")), 0o755).unwrap();
        symlink(path("real"), path("way")).unwrap();
        symlink("../way/deep", path("middle/second")).unwrap();
        symlink(path("middle/second"), path("third")).unwrap();
        symlink(path("round"), path("round")).unwrap();
        for (writable, inner) in [
            ("way", "real/x"),
            ("real", "way/x"),
            ("real", "third/x"),
            ("real", "third"),
            // Whoever may write here changes what a link on the way names.
            ("middle", "third/x"),
            ("round", "round/x"),
        ] {
            let document = services(&[(&path(writable), false)], &[(&path(inner), true)]);
            assert_eq!(refused(document).len(), 1, "{writable} {inner}");
        }
        assert_eq!(refused(services(&[(&path("middle"), false)], &[(&path("way/x"), true)])), Vec::<String>::new());
        // A server that is gone would let us wait for ever.
        let remote = BTreeSet::from([dir.path().to_owned()]);
        assert_eq!(look_up(Path::new(&path("way/x")), &remote).1, dir.path().join("way/x"));
    }
}
