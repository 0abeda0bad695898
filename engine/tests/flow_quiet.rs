//! What a window makes of quiet moments, and when it has one called.

use cutthrough_engine::flow::window::Window;
use cutthrough_engine::time::Instant;

/// Bytes of every frame.
const FRAME: u32 = 1500;
/// Nanoseconds of the way.
const WAY: u64 = 50_000;

/// One window's worth of frames goes out at `now` and is acknowledged, spread over `delay` ns. Returns when.
fn round(window: &mut Window, now: u64, delay: u64) -> u64 {
    let frames = window.bytes() / u64::from(FRAME);
    for frame in 1..=frames {
        let at = Instant::from_nanos(now + delay + delay * frame / frames);
        window.acked(at, FRAME.into(), (delay, delay), WAY, window.bytes());
    }
    now + 2 * delay
}

/// A window that has doubled for some rounds, and when that was.
fn filled() -> (Window, u64) {
    let mut window = Window::new(FRAME);
    let now = (0..3).fold(0, |now, _| round(&mut window, now, WAY));
    (window, now)
}

/// Delays far above the least, while next to nothing of this sender's stands in the queue: either the way has become
/// longer, or many share it. Who has much there itself knows whose queue it is.
#[test]
fn who_holds_little_and_waits_long_finds_it_strange() {
    let (mut window, mut now) = filled();
    let (mut rounds, mut most) = (0, u64::MAX);
    while !window.is_strange() {
        assert!(rounds < 1_000, "{window:?}");
        now = round(&mut window, now, 2_000_000);
        (rounds, most) = (rounds + 1, window.bytes());
    }
    assert!(rounds > 6 && most < 20 * u64::from(FRAME), "{rounds} rounds, {most} bytes");
    // One frame within the target shows that the way is as it was.
    for _ in 0..20 {
        window.acked(Instant::from_nanos(now), FRAME.into(), (60_000, 60_000), WAY, window.bytes());
        now = round(&mut window, now, 2_000_000);
    }
    assert!(!window.is_strange());
}

/// In a quiet moment the window is one frame, and is afterwards what it was, whatever came meanwhile.
#[test]
fn a_quiet_moment_leaves_the_window_as_it_was() {
    let (mut window, now) = filled();
    let before = window.bytes();
    window.hush(true);
    assert_eq!((window.bytes(), window.pace(10_000_000)), (u64::from(FRAME), 0));
    for turn in 0..100 {
        let at = Instant::from_nanos(now + turn * 100_000);
        window.acked(at, FRAME.into(), (90_000_000, 90_000_000), WAY, FRAME.into());
    }
    window.hush(false);
    assert_eq!(window.bytes(), before);
}

/// What stood in a queue is let go of, and nothing where none was; but never all.
#[test]
fn a_window_fits_the_way_that_was_shown() {
    for (least, round, part) in [(WAY, 20 * WAY, 20), (WAY, WAY, 1), (WAY, 5 * WAY, 1), (4_000_000, 8_000_000, 2)] {
        let (mut window, _) = filled();
        let before = window.bytes();
        window.fit(least, round);
        assert_eq!(window.bytes(), before / part, "{least} ns of {round}");
    }
    let (mut window, _) = filled();
    window.fit(1, u64::MAX);
    assert_eq!(window.bytes(), 4 * u64::from(FRAME));
}

/// What it was halved from, and what it drains to, was of the time before.
#[test]
fn what_is_found_later_does_not_undo_that() {
    let (mut window, mut now) = filled();
    for _ in 0..3 {
        now = round(&mut window, now, WAY);
    }
    let before = window.bytes();
    window.lost(Instant::from_nanos(now), before / 2);
    while window.bytes() >= before {
        now += 1_000;
        window.acked(Instant::from_nanos(now), FRAME.into(), (WAY, WAY), WAY, before);
    }
    window.fit(WAY, 20 * WAY);
    let fitted = window.bytes();
    assert!(fitted < before / 20, "{fitted} of {before} bytes");
    window.found(before);
    assert_eq!(window.bytes(), fitted);
}
