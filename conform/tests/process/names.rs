//! Names and folders: who may have them, and who may not.

use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;

use cutthrough::{AddressError, Endpoint, ListenError};

use crate::child::{Folder, Other, config};

/// What another process says that tries to listen under a name in a folder.
fn try_in(folder: &Folder, part: &str, user: Option<u32>) -> String {
    let mut command = Other::command(part, "shm:name");
    command.env("CUTTHROUGH_DIR", folder.path());
    if let Some(user) = user {
        command.uid(user).gid(user);
    }
    Other::start(command).says()
}

#[test]
fn a_name_in_use_is_refused() {
    let folder = Folder::new();
    let _other = Other::ready("listen", &folder.address());
    let mut endpoint = Endpoint::open(config()).expect("an endpoint");
    let error = endpoint.listen(&folder.address()).expect_err("it is in use");
    assert!(matches!(error, ListenError::Address(AddressError::InUse(_))), "{error}");
    assert!(error.to_string().contains("in use"));
}

#[test]
fn a_folder_of_ones_own_works_and_is_left_empty() {
    let folder = Folder::new();
    assert_eq!(try_in(&folder, "try-listen", None), "listening");
    assert!(folder.files().is_empty(), "{:?}", folder.files());
    assert!(try_in(&folder, "try-connect", None).contains("nobody listens"));
}

#[test]
fn a_folder_that_others_may_enter_is_refused() {
    let folder = Folder::new();
    for mode in [0o755, 0o710, 0o701, 0o777] {
        std::fs::set_permissions(folder.path(), PermissionsExt::from_mode(mode)).expect("its mode");
        let said = try_in(&folder, "try-listen", None);
        assert!(said.contains("others may enter") && said.contains("CUTTHROUGH_DIR"), "{mode:o}: {said}");
    }
}

#[test]
fn another_users_folder_and_socket_are_refused() {
    if !rustix::process::geteuid().is_root() {
        return cutthrough_conform::skipped("only root can start a process of another user");
    }
    let folder = Folder::new();
    let said = try_in(&folder, "try-listen", Some(65534));
    assert!(said.contains("another user"), "{said}");
    let mut endpoint = Endpoint::open(config()).expect("an endpoint");
    endpoint.listen(&folder.address()).expect("a free name");
    std::fs::set_permissions(folder.path(), PermissionsExt::from_mode(0o755)).expect("its mode");
    let mut command = Other::command("try-connect", &folder.address());
    command.uid(65534).gid(65534);
    let said = Other::start(command).says();
    assert!(said.contains("another user"), "{said}");
}
