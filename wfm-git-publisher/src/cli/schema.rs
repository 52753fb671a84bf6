//! `schema`.

use clap::ValueEnum;
use repo_git::durable;
use serde_json::json;

use super::{OutputArgs, Place};
use crate::config;
use crate::error::Failure;
use crate::operator::SKELETON;

/// Prints the JSON Schema of a file that operators write, or of what commands print
///
/// Editors complete and check a file by the line `# yaml-language-server: $schema=…` at its head; a new fleet has the
/// schemas in its folder .schemas, and that of publisher.yaml beside it. --write puts those of this version there.
///
///   wfm-git-publisher schema deployment
///   wfm-git-publisher schema --write
///   wfm-git-publisher schema output
#[derive(Debug, clap::Args)]
#[command(verbatim_doc_comment)]
pub(super) struct Args {
    /// The kind of file, or `output`
    #[arg(value_enum, required_unless_present = "write")]
    kind: Option<Kind>,

    /// Write all of them into .schemas of the fleet and into the publisher's home; nothing is committed
    #[arg(long, conflicts_with = "kind")]
    write: bool,

    #[command(flatten)]
    output: OutputArgs,
}

/// What commands print for programs, by the words of the command; questions to a host are described apart.
const OUTPUT_SCHEMA: &str = include_str!("../../output.schema.json");

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Kind {
    /// fleet.yaml
    Fleet,
    /// devices/**/*.yaml
    Device,
    /// tokens/*.yaml
    Token,
    /// deployments/**/*.yaml
    Deployment,
    /// rollouts/*.yaml
    Rollout,
    /// allowed/**/*.yaml
    Allowed,
    /// applications/<id>/<version>/margo.yaml
    Application,
    /// publisher.yaml in the publisher's home
    Publisher,
    /// What commands print with --output json
    Output,
}

impl Kind {
    fn text(self) -> &'static str {
        let path = match self {
            Self::Fleet => ".schemas/fleet.json",
            Self::Device => ".schemas/device.json",
            Self::Token => ".schemas/token.json",
            Self::Rollout => ".schemas/rollout.json",
            Self::Allowed => ".schemas/allowed.json",
            Self::Deployment => ".schemas/deployment.json",
            Self::Application => ".schemas/application.json",
            Self::Publisher => return config::SCHEMA,
            Self::Output => return OUTPUT_SCHEMA,
        };
        SKELETON.iter().find(|(name, _)| *name == path).map_or("", |(_, text)| text)
    }
}

pub(super) fn run(place: &Place, args: &Args) -> Result<u8, Failure> {
    if let Some(kind) = args.kind {
        super::print(kind.text());
        return Ok(0);
    }
    let (root, mut written) = (place.root()?, Vec::new());
    for (path, text) in SKELETON.iter().filter(|(path, _)| path.starts_with(".schemas/")) {
        let file = root.join(path);
        durable::create_dir_all(file.parent().unwrap_or(&root), 0o755)?;
        durable::replace_file(&file, text.as_bytes(), 0o644)?;
        written.push((*path).to_owned());
    }
    let home = place.home()?;
    if home.check().is_ok() {
        home.write(&home.config_schema(), config::SCHEMA.as_bytes(), 0o644)?;
        written.push(home.config_schema().display().to_string());
    }
    let text = written.iter().map(|path| format!("{path}\n")).collect::<String>();
    args.output.print(&text, || json!({ "written": written }));
    Ok(0)
}
