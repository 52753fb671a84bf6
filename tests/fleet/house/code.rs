//! What a crate's files import from each other, and what they spell out, read from their tokens: comments, attributes and
//! tests don't count.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

use proc_macro2::{Delimiter, TokenStream, TokenTree};

/// The files of a crate, and the modules in them.
#[derive(Default)]
pub(super) struct Code {
    /// Each module; the first is the crate's root.
    modules: Vec<Module>,
}

#[derive(Default)]
struct Module {
    file: PathBuf,
    parent: Option<usize>,
    children: BTreeMap<String, usize>,
    uses: Vec<Use>,
    /// Paths of two parts or more outside `use`.
    paths: Vec<Mention>,
    /// Every other word outside `use`.
    words: BTreeSet<String>,
    texts: Vec<Text>,
}

/// A literal, as it is spelled in the source.
pub(super) struct Text {
    pub(super) file: PathBuf,
    pub(super) line: usize,
    /// With its quotes.
    pub(super) text: String,
}

/// One name that `use` brings into scope, `*` for all of a module's.
struct Use {
    name: String,
    target: Mention,
    is_reexport: bool,
}

#[derive(Clone)]
struct Mention {
    segments: Vec<String>,
    line: usize,
}

/// Something that one file uses of another.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Import {
    pub(super) from: PathBuf,
    /// The file in which it is defined, whatever re-exports it.
    pub(super) to: PathBuf,
    /// Where it is imported first.
    pub(super) line: usize,
    /// As it is written there.
    pub(super) path: String,
}

/// What a path leads to.
#[derive(Clone, Copy)]
enum Target {
    Module(usize),
    /// Something that this module defines.
    Item(usize),
}

impl Code {
    /// Reads the crate whose root this file is.
    pub(super) fn read(root: &Path) -> Self {
        let mut code = Self::default();
        code.add(None, root);
        code
    }

    /// Every file, but those of tests.
    pub(super) fn files(&self) -> BTreeSet<PathBuf> {
        self.modules.iter().map(|module| module.file.clone()).collect()
    }

    /// Every literal.
    pub(super) fn texts(&self) -> impl Iterator<Item = &Text> {
        self.modules.iter().flat_map(|module| &module.texts)
    }

    /// What the files import from each other, each pair of files once. A file that is part of a module may use what that
    /// module's own file defines: that isn't told.
    pub(super) fn imports(&self) -> Vec<Import> {
        let mut found: BTreeMap<(PathBuf, PathBuf), Import> = BTreeMap::new();
        for (at, module) in self.modules.iter().enumerate() {
            // A name that is only handed on isn't used by who hands it on.
            let is_used = |one: &&Use| !one.is_reexport || module.words.contains(&one.name);
            let uses = module.uses.iter().filter(is_used).map(|one| &one.target);
            for mention in uses.chain(&module.paths) {
                let Some(Target::Item(to)) = self.resolve(at, &mention.segments, 0) else { continue };
                if self.is_part_of(at, to) {
                    continue;
                }
                let (from, to) = (module.file.clone(), self.modules[to].file.clone());
                let import = Import {
                    from: from.clone(),
                    to: to.clone(),
                    line: mention.line,
                    path: mention.segments.join("::"),
                };
                if from != to {
                    let first = found.entry((from, to)).or_insert_with(|| import.clone());
                    *first = first.clone().min(import);
                }
            }
        }
        found.into_values().collect()
    }

    fn is_part_of(&self, at: usize, whole: usize) -> bool {
        std::iter::successors(Some(at), |at| self.modules[*at].parent).any(|one| one == whole)
    }

    fn add(&mut self, parent: Option<usize>, file: &Path) -> usize {
        let text = fs::read_to_string(file).unwrap_or_else(|error| panic!("{}: {error}", file.display()));
        let tokens = text.parse().unwrap_or_else(|error| panic!("{}: {error}", file.display()));
        self.modules.push(Module { file: file.to_owned(), parent, ..Module::default() });
        let at = self.modules.len() - 1;
        let is_root = ["lib.rs", "main.rs", "mod.rs"].iter().any(|name| file.ends_with(name));
        let below = if is_root { file.with_file_name("") } else { file.with_extension("") };
        self.tokens(at, tokens, &below);
        at
    }

    /// Reads what stands in a module, or in a group of it. `below` is where its children's files lie.
    fn tokens(&mut self, at: usize, tokens: TokenStream, below: &Path) {
        let tokens: Vec<_> = tokens.into_iter().collect();
        let mut i = 0;
        while i < tokens.len() {
            i = match &tokens[i] {
                TokenTree::Punct(sign) if sign.as_char() == '#' => skip_attribute(&tokens, i),
                TokenTree::Ident(word) if word == "mod" => self.child(at, &tokens, i, below),
                TokenTree::Ident(word) if word == "use" => {
                    let end = (i..tokens.len()).find(|j| is_sign(&tokens[*j], ';')).unwrap_or(tokens.len());
                    let is_reexport = is_public(&tokens[..i]);
                    use_tree(&tokens[i + 1..end], &[], is_reexport, &mut self.modules[at].uses);
                    end
                }
                // The name of a type, for `Debug`: nothing that is written or read.
                TokenTree::Ident(word) if word == "debug_struct" || word == "debug_tuple" => i + 2,
                TokenTree::Ident(_) => self.path(at, &tokens, i),
                TokenTree::Group(group) => {
                    self.tokens(at, group.stream(), below);
                    i + 1
                }
                TokenTree::Literal(literal) => {
                    let (file, line) = (self.modules[at].file.clone(), literal.span().start().line);
                    self.modules[at].texts.push(Text { file, line, text: literal.to_string() });
                    i + 1
                }
                TokenTree::Punct(_) => i + 1,
            };
        }
    }

    /// `mod name;` or `mod name { … }`.
    fn child(&mut self, at: usize, tokens: &[TokenTree], i: usize, below: &Path) -> usize {
        let Some(TokenTree::Ident(name)) = tokens.get(i + 1) else { return i + 1 };
        let name = name.to_string();
        let child = match tokens.get(i + 2) {
            Some(TokenTree::Group(group)) if group.delimiter() == Delimiter::Brace => {
                let file = self.modules[at].file.clone();
                self.modules.push(Module { file, parent: Some(at), ..Module::default() });
                let child = self.modules.len() - 1;
                self.tokens(child, group.stream(), &below.join(&name));
                child
            }
            _ => {
                let places = [below.join(format!("{name}.rs")), below.join(&name).join("mod.rs")];
                let file = places.iter().find(|file| file.exists());
                self.add(Some(at), file.unwrap_or_else(|| panic!("no file for `mod {name}` in {}", below.display())))
            }
        };
        self.modules[at].children.insert(name, child);
        i + 3
    }

    /// A word, or a path that begins with it.
    fn path(&mut self, at: usize, tokens: &[TokenTree], begin: usize) -> usize {
        let mut segments = vec![tokens[begin].to_string()];
        let mut i = begin + 1;
        while let [first, second, TokenTree::Ident(next), ..] = &tokens[i..]
            && is_sign(first, ':')
            && is_sign(second, ':')
        {
            segments.push(next.to_string());
            i += 3;
        }
        let is_field = begin > 0 && is_sign(&tokens[begin - 1], '.');
        if segments.len() > 1 {
            self.modules[at].words.insert(segments[0].clone());
            let line = tokens[begin].span().start().line;
            self.modules[at].paths.push(Mention { segments, line });
        } else if !is_field {
            self.modules[at].words.extend(segments);
        }
        i
    }

    /// What a path means in a module; nothing for what isn't of this crate.
    fn resolve(&self, at: usize, segments: &[String], depth: usize) -> Option<Target> {
        let (first, rest) = segments.split_first()?;
        match first.as_str() {
            "crate" => self.look_up(0, rest, depth),
            "self" => self.look_up(at, rest, depth),
            "super" => self.look_up(self.modules[at].parent?, rest, depth),
            name if self.declares(at, name) => self.look_up(at, segments, depth),
            _ => None,
        }
    }

    /// Whether a module has a child of this name, or a `use` brings the name in.
    fn declares(&self, at: usize, name: &str) -> bool {
        let module = &self.modules[at];
        module.children.contains_key(name) || module.uses.iter().any(|one| one.name == name)
    }

    /// What a path below a module means, by whatever re-exports it.
    fn look_up(&self, at: usize, segments: &[String], depth: usize) -> Option<Target> {
        assert!(depth < 50, "`{}` in {} leads in a circle", segments.join("::"), self.modules[at].file.display());
        let Some((first, rest)) = segments.split_first() else { return Some(Target::Module(at)) };
        if first == "super" {
            return self.look_up(self.modules[at].parent?, rest, depth + 1);
        }
        if let Some(child) = self.modules[at].children.get(first) {
            return self.look_up(*child, rest, depth + 1);
        }
        if let Some(one) = self.modules[at].uses.iter().find(|one| one.name == *first) {
            let path = [&one.target.segments[..], rest].concat();
            let is_itself = one.target.segments.first() == Some(first);
            // What comes from another crate counts as this module's own for who gets it from here.
            return if is_itself { None } else { self.resolve(at, &path, depth + 1) }.or(Some(Target::Item(at)));
        }
        for glob in self.modules[at].uses.iter().filter(|one| one.name == "*") {
            if let Some(Target::Module(other)) = self.resolve(at, &glob.target.segments, depth + 1)
                && (self.declares(other, first) || self.modules[other].words.contains(first))
            {
                return self.look_up(other, segments, depth + 1);
            }
        }
        Some(Target::Item(at))
    }
}

fn is_sign(token: &TokenTree, sign: char) -> bool {
    matches!(token, TokenTree::Punct(punct) if punct.as_char() == sign)
}

/// Whether `pub` or `pub(…)` stands at the end.
fn is_public(before: &[TokenTree]) -> bool {
    let is_pub = |token: Option<&TokenTree>| matches!(token, Some(TokenTree::Ident(word)) if word == "pub");
    match before {
        [.., before, TokenTree::Group(_)] => is_pub(Some(before)),
        all => is_pub(all.last()),
    }
}

/// Behind the attribute at `i`; where something is there for tests alone, behind that too.
fn skip_attribute(tokens: &[TokenTree], i: usize) -> usize {
    let begin = if tokens.get(i + 1).is_some_and(|token| is_sign(token, '!')) { i + 2 } else { i + 1 };
    let Some(TokenTree::Group(group)) = tokens.get(begin) else { return i + 1 };
    let text = group.stream().to_string().replace(' ', "");
    let is_of_tests = text.starts_with("cfg(test") || text.starts_with("cfg(all(test");
    if is_of_tests { skip_item(tokens, begin + 1) } else { begin + 1 }
}

/// Behind the item, field or statement that begins at `i`, perhaps with more attributes.
fn skip_item(tokens: &[TokenTree], i: usize) -> usize {
    let is_item = |token: &TokenTree| {
        let words = ["fn", "mod", "use", "pub", "impl", "struct", "enum", "const", "static", "type", "trait", "async"];
        matches!(token, TokenTree::Ident(word) if words.iter().any(|item| word == item))
    };
    let rest = &tokens[i..];
    let is_item = rest.iter().find(|token| matches!(token, TokenTree::Ident(_))).is_some_and(is_item);
    let is_end = |token: &TokenTree| match token {
        TokenTree::Group(group) => group.delimiter() == Delimiter::Brace,
        token => is_sign(token, ';') || (!is_item && is_sign(token, ',')),
    };
    rest.iter().position(is_end).map_or(tokens.len(), |end| i + end + 1)
}

/// The names that a `use` brings into scope.
fn use_tree(tokens: &[TokenTree], prefix: &[String], is_reexport: bool, uses: &mut Vec<Use>) {
    for tree in tokens.split(|token| is_sign(token, ',')) {
        let (mut segments, mut name, mut line, mut renames) = (prefix.to_vec(), None, 0, false);
        for token in tree {
            line = line.max(token.span().start().line);
            match token {
                TokenTree::Ident(word) if word == "as" => renames = true,
                TokenTree::Ident(word) if renames => name = Some(word.to_string()),
                TokenTree::Ident(word) => segments.push(word.to_string()),
                TokenTree::Group(group) => {
                    let inner: Vec<_> = group.stream().into_iter().collect();
                    use_tree(&inner, &segments, is_reexport, uses);
                    segments.clear();
                }
                token if is_sign(token, '*') => name = Some("*".to_owned()),
                _ => {}
            }
        }
        // `a::{self}` is `a`.
        if segments.len() > 1 {
            segments.pop_if(|last| last == "self");
        }
        if let Some(last) = segments.last().cloned() {
            uses.push(Use { name: name.unwrap_or(last), target: Mention { segments, line }, is_reexport });
        }
    }
}
