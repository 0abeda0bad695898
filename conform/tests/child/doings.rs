//! Everything that can be under way at a survivor when the other side dies.

use cutthrough::{Channel, CloseReason, Endpoint, Event, ReadError, RoomError, SendError};

use super::PATIENCE;

/// What the survivor does until it hears of the end: why it ended.
pub(crate) type Doing = fn(&mut Endpoint, Channel) -> CloseReason;

/// Everything that can be under way, and the part of the one that dies.
pub(crate) const DOINGS: [(&str, &str, Doing); 7] = [
    ("waiting", "", |endpoint, _| {
        loop {
            if let Event::Closed(_, reason) = endpoint.wait(Some(PATIENCE)).expect("the end") {
                return reason;
            }
        }
    }),
    ("polling", "", |endpoint, _| {
        loop {
            if let Some(Event::Closed(_, reason)) = endpoint.poll() {
                return reason;
            }
        }
    }),
    ("sending control messages", "", |endpoint, channel| {
        loop {
            match endpoint.send(channel, b"control") {
                Ok(()) | Err(SendError::Full) => {}
                Err(SendError::Closed(reason)) => return reason,
                Err(error) => panic!("{error}"),
            }
            if let Some(Event::Closed(_, reason)) = endpoint.poll() {
                return reason;
            }
        }
    }),
    ("waiting for room", "", |endpoint, channel| {
        loop {
            let room = match endpoint.send(channel, b"control") {
                Ok(()) => continue,
                Err(SendError::Full) => endpoint.wait_for_room(channel, Some(PATIENCE)),
                Err(SendError::Closed(reason)) => return reason,
                Err(error) => panic!("{error}"),
            };
            match room {
                Ok(()) => {}
                Err(RoomError::Closed(reason)) => return reason,
                Err(error) => panic!("{error}"),
            }
        }
    }),
    ("sending private memory", "", |endpoint, channel| {
        let payload = vec![9; 8 << 20];
        loop {
            match endpoint.outgoing(channel).and_then(|outgoing| outgoing.attach_copy(&payload).send()) {
                Ok(_) | Err(SendError::Full) => {}
                Err(SendError::Closed(reason)) => return reason,
                Err(error) => panic!("{error}"),
            }
            if let Some(Event::Closed(_, reason)) = endpoint.poll() {
                return reason;
            }
        }
    }),
    ("lending pages", "-hold", |endpoint, channel| {
        loop {
            if let Ok(page) = endpoint.page(channel, 1 << 20) {
                let _ = endpoint.outgoing(channel).and_then(|outgoing| outgoing.attach(page).track(1).send());
            }
            if let Some(Event::Closed(_, reason)) = endpoint.poll() {
                return reason;
            }
        }
    }),
    ("reading", "-send", |endpoint, _| {
        let mut bytes = vec![0; 8 << 20];
        loop {
            match endpoint.wait(Some(PATIENCE)).expect("the end") {
                Event::Message(mut message) => match endpoint.read(&mut message, &mut bytes) {
                    Ok(_) => assert!(bytes.iter().all(|byte| *byte == 5)),
                    Err(ReadError::Closed(reason)) => return reason,
                    Err(error) => panic!("{error}"),
                },
                Event::Closed(_, reason) => return reason,
                _ => {}
            }
        }
    }),
];
