//! The texts keep what they promise: the README and the guide show the examples as they are and they run, every rule
//! of the wire names tests that exist, and no link leads nowhere, nor to a heading that is not there.

mod example;

use std::fs;
use std::path::{Path, PathBuf};

/// The folder of the repository.
fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("the workspace's folder")
}

fn read(path: impl AsRef<Path>) -> String {
    let path = root().join(path);
    fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// Every Rust source below a folder of the repository, results of builds left out.
fn sources(folder: &Path, found: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
        let path = entry.path();
        if path.is_dir() {
            if !path.ends_with("target") && !path.ends_with(".git") {
                sources(&path, found);
            }
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            found.push(path);
        }
    }
}

/// What stands between backquotes.
fn quoted(text: &str) -> impl Iterator<Item = &str> {
    text.split('`').skip(1).step_by(2)
}

#[test]
fn the_texts_show_the_examples() {
    let shown = [
        ("README.md", "cutthrough/examples/page_server.rs"),
        ("README.md", "cutthrough/examples/page_client.rs"),
        ("docs/guide.md", "cutthrough/examples/layers.rs"),
        ("docs/guide.md", "conform/tests/guide.rs"),
    ];
    for (text, example) in shown {
        let code = read(example);
        assert!(read(text).contains(&format!("```rust\n{code}```\n")), "{text} differs from {example}");
    }
}

#[test]
fn every_rule_of_the_wire_names_tests_that_exist() {
    let mut paths = Vec::new();
    sources(root(), &mut paths);
    let code: String = paths.iter().map(|path| fs::read_to_string(path).unwrap_or_default()).collect();
    let text = read("docs/wire.md");
    let rules: Vec<&str> = text.split("\n**").skip(1).collect();
    assert!(rules.len() > 30, "{} rules", rules.len());
    for rule in rules {
        let name = rule.split('.').next().unwrap_or(rule);
        let (_, tests) = rule.split_once("Shown by:").unwrap_or_else(|| panic!("{name} names no test"));
        let tests = tests.split("\n\n").next().unwrap_or(tests);
        assert!(quoted(tests).next().is_some(), "{name} names no test");
        for test in quoted(tests) {
            let target = root().join(format!("fuzz/fuzz_targets/{test}.rs"));
            assert!(code.contains(&format!("fn {test}(")) || target.exists(), "{name}: there is no {test}");
        }
    }
}

#[test]
fn rules_that_the_code_cites_exist() {
    let text = read("docs/wire.md");
    let mut paths = Vec::new();
    sources(root(), &mut paths);
    let mut cited = 0;
    for path in paths {
        let code = fs::read_to_string(&path).unwrap_or_default();
        for citation in code.split("(rule").skip(1) {
            let citation = citation.split(')').next().unwrap_or("");
            for rule in citation.split(|c: char| !c.is_ascii_alphanumeric()).filter(|word| is_rule(word)) {
                assert!(text.contains(&format!("\n**{rule}. ")), "{}: there is no rule {rule}", path.display());
                cited += 1;
            }
        }
    }
    assert!(cited > 10, "only {cited} citations found");
}

/// Whether a word looks like the number of a rule: a capital letter and digits.
fn is_rule(word: &str) -> bool {
    let (letter, digits) = word.split_at(word.len().min(1));
    letter.chars().all(|c| c.is_ascii_uppercase()) && !digits.is_empty() && digits.bytes().all(|b| b.is_ascii_digit())
}

/// The headings of a text, as links name them: small letters, digits and hyphens, one for each space.
fn headings(text: &str) -> impl Iterator<Item = String> {
    let lines = text.lines().filter(|line| line.starts_with('#')).map(|line| line.trim_start_matches('#').trim());
    let kept = |c: &char| c.is_alphanumeric() || matches!(c, ' ' | '-' | '_');
    lines.map(move |line| line.to_lowercase().chars().filter(kept).collect::<String>().replace(' ', "-"))
}

#[test]
fn no_link_leads_nowhere() {
    let mut texts = ["README.md", "CONTRIBUTING.md", "CHANGELOG.md", "fuzz/README.md", "bench/peers/README.md"]
        .map(PathBuf::from)
        .to_vec();
    let docs = fs::read_dir(root().join("docs")).expect("the documents").map(|entry| entry.expect("a file").path());
    texts.extend(docs.filter(|path| path.extension().is_some_and(|extension| extension == "md")));
    assert!(texts.len() > 10, "{texts:?}");
    for text in texts {
        let folder = root().join(&text).parent().map(Path::to_path_buf).expect("a folder");
        for link in read(&text).split("](").skip(1).filter_map(|rest| rest.split(')').next()) {
            let (file, heading) = link.split_once('#').unwrap_or((link, ""));
            if file.contains("://") {
                continue;
            }
            let target = if file.is_empty() { root().join(&text) } else { folder.join(file) };
            assert!(target.exists(), "{}: {link}", text.display());
            let leads = heading.is_empty() || headings(&read(&target)).any(|there| there == heading);
            assert!(leads, "{}: {link}: no such heading", text.display());
        }
    }
}

/// The examples of the README and the guide run.
mod examples {
    use std::io::{BufRead, BufReader};
    use std::path::Path;
    use std::process::{Child, Stdio};

    use crate::example::{example, make_key};

    struct Running(Child);

    impl Drop for Running {
        fn drop(&mut self) {
            let _ = self.0.kill();
            let _ = self.0.wait();
        }
    }

    /// Runs both examples with these arguments: the page that the client gets, and what the server says of it.
    fn exchange(folder: &Path, address: Option<&str>, keys: Option<&Path>) -> String {
        let file = super::root().join("LICENSE-APACHE");
        let mut server = example("page_server");
        server.arg(&file).args(address).args(keys).env("CUTTHROUGH_DIR", folder).stdout(Stdio::piped());
        let mut server = Running(server.spawn().expect("the server"));
        let mut lines = BufReader::new(server.0.stdout.take().expect("its output")).lines();
        assert!(lines.next().expect("a line").expect("text").ends_with(address.unwrap_or("shm:pages")));
        let mut client = example("page_client");
        client.arg("1").args(address).args(keys).env("CUTTHROUGH_DIR", folder);
        let client = client.output().expect("the client");
        let bytes = std::fs::read(&file).expect("the file");
        assert_eq!(client.stdout, bytes[4096..8192], "{}", String::from_utf8_lossy(&client.stderr));
        let said = lines.next().expect("a line").expect("text");
        // The file has no such page.
        let mut client = example("page_client");
        client.arg("4294967295").args(address).args(keys).env("CUTTHROUGH_DIR", folder);
        let client = client.output().expect("the client");
        assert!(!client.status.success() && client.stdout.is_empty());
        let why = String::from_utf8_lossy(&client.stderr);
        assert_eq!(why, "page_client: the server has no page 4294967295\n");
        said
    }

    #[test]
    fn the_layers_of_the_guide_do_what_they_show() {
        let folder = std::env::temp_dir().join(format!("cutthrough-layers-{}", std::process::id()));
        let output = example("layers").env("CUTTHROUGH_DIR", &folder).output().expect("the example");
        let said = String::from_utf8_lossy(&output.stdout);
        assert_eq!(said, "20 + 22 = 42\nread back: hello; counter was 0\nlength: 5\n");
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        std::fs::remove_dir_all(folder).expect("the folder");
    }

    #[test]
    fn the_examples_of_the_readme_exchange_a_page() {
        let folder = std::env::temp_dir().join(format!("cutthrough-readme-{}", std::process::id()));
        assert_eq!(exchange(&folder, None, None), "4096 bytes, path put, copies 1");
        let keys = folder.join("pages.key");
        make_key(&keys);
        // A host of this process alone, and a port that the system gives nobody by itself.
        let [_, high, middle, low] = std::process::id().to_be_bytes();
        let address = format!("udp:127.{}.{middle}.{low}:7000", high + 1);
        let said = exchange(&folder, Some(&address), Some(&keys));
        assert!(said.starts_with("4096 bytes, path wire"), "{said}");
        std::fs::remove_dir_all(folder).expect("the folder");
    }
}
