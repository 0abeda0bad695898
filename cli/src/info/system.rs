//! What the kernel and its settings give this process.

use std::fs;
use std::path::Path;

use rustix::process::{Resource, getrlimit};
use serde::Serialize;

use crate::cpu;
use crate::units::Size;

/// Pages, limits and clock of this machine, as far as messages depend on them.
#[derive(Debug, Serialize)]
pub struct System {
    /// Bytes of the page sizes that an endpoint can choose.
    pub page_sizes: Vec<u64>,
    /// What the kernel does when 2 MiB pages are asked for in shared memory: `always`, `advise`, `never`...; absent if
    /// it does not say.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub huge_pages_in_shared_memory: Option<String>,
    /// Reserved 2 MiB pages that are free; absent if the kernel has none of that size.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub huge_pages_free: Option<u64>,
    /// Memory that can still be used, in bytes; absent if the kernel does not say.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub memory_available: Option<u64>,
    /// Files this process may have open; absent if there is no limit.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub open_files: Option<u64>,
    /// Bytes that a file of this process may have, and so each piece of shared memory; absent if there is no limit.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub file_size: Option<u64>,
    /// Memory this process may lock, in bytes; absent if there is no limit.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub locked_memory: Option<u64>,
    /// The processors this process may use.
    pub cores_allowed: Vec<usize>,
    /// What the kernel reads the time from; absent if it does not say.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub clock_source: Option<String>,
}

impl System {
    /// What this process finds.
    #[must_use]
    pub fn here() -> Self {
        use cutthrough::PageSize::{K4, K8, K64, M2};
        let meminfo = read("/proc/meminfo").unwrap_or_default();
        Self {
            page_sizes: [K4, K8, K64, M2].map(|size| u64::from(size.bytes())).into(),
            huge_pages_in_shared_memory: read("/sys/kernel/mm/transparent_hugepage/shmem_enabled")
                .as_deref()
                .and_then(chosen),
            huge_pages_free: read("/sys/kernel/mm/hugepages/hugepages-2048kB/free_hugepages")
                .and_then(|text| text.parse().ok()),
            memory_available: kibibytes(&meminfo, "MemAvailable:")
                .into_iter()
                .chain(left_of_group(Path::new("/")))
                .min(),
            open_files: getrlimit(Resource::Nofile).current,
            file_size: getrlimit(Resource::Fsize).current,
            locked_memory: getrlimit(Resource::Memlock).current,
            cores_allowed: cpu::allowed(),
            clock_source: read("/sys/devices/system/clocksource/clocksource0/current_clocksource"),
        }
    }

    /// The same for people: what, and its value.
    #[must_use]
    pub fn lines(&self) -> Vec<(&'static str, String)> {
        let sizes: Vec<String> = self.page_sizes.iter().map(|&bytes| Size(bytes).to_string()).collect();
        let limit = |value: Option<u64>| value.map_or_else(|| "no limit".into(), |value| value.to_string());
        let known = |value: &Option<String>| value.clone().unwrap_or_else(|| "unknown".into());
        let memory = |value: Option<u64>, otherwise: &str| {
            value.map_or_else(|| otherwise.into(), |bytes| Size(bytes & !((1 << 20) - 1)).to_string())
        };
        vec![
            ("page sizes", sizes.join(", ")),
            ("huge pages", format!("shared memory: {}", known(&self.huge_pages_in_shared_memory))),
            ("memory available", memory(self.memory_available, "unknown")),
            ("open files", limit(self.open_files)),
            ("longest file", self.file_size.map_or_else(|| "no limit".into(), |bytes| Size(bytes).to_string())),
            ("locked memory", memory(self.locked_memory, "no limit")),
            ("clock source", known(&self.clock_source)),
        ]
    }
}

fn read(path: impl AsRef<Path>) -> Option<String> {
    Some(fs::read_to_string(path).ok()?.trim().to_string())
}

/// The word in brackets: `always [advise] never` has chosen `advise`.
fn chosen(text: &str) -> Option<String> {
    let (_, rest) = text.split_once('[')?;
    let (word, _) = rest.split_once(']')?;
    Some(word.to_string())
}

/// The value of a line such as `MemAvailable:  1024 kB`, in bytes.
fn kibibytes(meminfo: &str, name: &str) -> Option<u64> {
    let line = meminfo.lines().find_map(|line| line.strip_prefix(name))?;
    let count: u64 = line.split_whitespace().next()?.parse().ok()?;
    count.checked_mul(1 << 10)
}

/// Bytes that this process's control group, or one above it, may still have, as the files below this root say; nothing
/// where there is no limit.
fn left_of_group(root: &Path) -> Option<u64> {
    let groups = read(root.join("proc/self/cgroup"))?;
    let above = |place: &str, path: &str| {
        let place = root.join(place);
        let path = place.join(path.trim_start_matches('/'));
        path.ancestors().take_while(|folder| folder.starts_with(&place)).map(Path::to_path_buf).collect::<Vec<_>>()
    };
    let left = |folder: &Path, limit: &str, used: &str| {
        let number = |name: &str| read(folder.join(name))?.parse::<u64>().ok();
        // What lies there of files only is let go of when memory is short.
        let stat = read(folder.join("memory.stat")).unwrap_or_default();
        let of_files = stat.lines().find_map(|line| line.strip_prefix("inactive_file ")?.trim().parse::<u64>().ok());
        Some(number(limit)?.saturating_sub(number(used)?.saturating_sub(of_files.unwrap_or(0))))
    };
    let of_line = |line: &str| {
        let (controllers, path) = line.split_once(':')?.1.split_once(':')?;
        match controllers {
            "" => above("sys/fs/cgroup", path).iter().filter_map(|at| left(at, "memory.max", "memory.current")).min(),
            _ if controllers.split(',').any(|name| name == "memory") => above("sys/fs/cgroup/memory", path)
                .iter()
                .filter_map(|at| left(at, "memory.limit_in_bytes", "memory.usage_in_bytes"))
                .min(),
            _ => None,
        }
    };
    groups.lines().filter_map(of_line).min()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_chosen_word_is_the_one_in_brackets() {
        assert_eq!(chosen("always within_size [advise] never").as_deref(), Some("advise"));
        assert_eq!(chosen("never"), None);
    }

    #[test]
    fn memory_is_read_in_bytes() {
        let text = "MemTotal:  4 kB\nMemAvailable:   3 kB\n";
        assert_eq!(kibibytes(text, "MemAvailable:"), Some(3 << 10));
        assert_eq!(kibibytes(text, "Absent:"), None);
    }

    #[test]
    fn the_closest_limit_of_all_groups_counts() {
        let root = std::env::temp_dir().join(format!("cutthrough-info-{}", std::process::id()));
        let write = |path: &str, text: &str| {
            let path = root.join(path);
            fs::create_dir_all(path.parent().expect("a folder")).expect("it is made");
            fs::write(path, text).expect("it is written");
        };
        assert_eq!(left_of_group(&root), None);
        write("proc/self/cgroup", "4:cpu,memory:/a/b\n0::/c/d\n");
        write("sys/fs/cgroup/c/d/memory.max", "max\n");
        write("sys/fs/cgroup/c/d/memory.current", "70\n");
        assert_eq!(left_of_group(&root), None);
        write("sys/fs/cgroup/c/memory.max", "1000\n");
        write("sys/fs/cgroup/c/memory.current", "900\n");
        write("sys/fs/cgroup/c/memory.stat", "anon 600\ninactive_file 250\nactive_file 50\n");
        assert_eq!(left_of_group(&root), Some(350));
        write("sys/fs/cgroup/memory/a/memory.limit_in_bytes", "500\n");
        write("sys/fs/cgroup/memory/a/memory.usage_in_bytes", "200\n");
        assert_eq!(left_of_group(&root), Some(300));
        fs::remove_dir_all(root).expect("it is removed");
    }

    #[test]
    fn every_fact_has_a_line() {
        let system = System::here();
        assert!(system.lines().iter().all(|(what, value)| !what.is_empty() && !value.is_empty()));
        assert_eq!(system.page_sizes, [4096, 8192, 65_536, 2 << 20]);
    }
}
