//! The names of curves, in lines above them, and their colours.

use std::error::Error as StdError;

use plotters::{coord::Shift, prelude::*};

/// Width of a chart.
pub(super) const WIDTH: u32 = 960;

pub(super) const TEXT: (&str, u32) = ("sans-serif", 14);

/// Colours distinguishable with the common colour-vision deficiencies (Okabe and Ito 2008).
const COLOURS: [RGBColor; 7] = [
    RGBColor(0, 114, 178),
    RGBColor(213, 94, 0),
    RGBColor(0, 158, 115),
    RGBColor(204, 121, 167),
    RGBColor(230, 159, 0),
    RGBColor(86, 180, 233),
    RGBColor(0, 0, 0),
];

pub(super) type Drawn = std::result::Result<(), Box<dyn StdError>>;
pub(super) type Area<'a> = DrawingArea<SVGBackend<'a>, Shift>;

pub(super) fn colour(run: usize) -> RGBColor {
    COLOURS[run % COLOURS.len()]
}

/// Height of a line of names above a chart.
const LINE_OF_NAMES: u32 = 22;

/// Returns the places of the names of the curves in lines above the chart, by the width of their letters.
fn places_of(names: &[String]) -> Vec<(i32, i32)> {
    let (mut x, mut y) = (76, 16);
    let width = |name: &String| 48 + 8 * name.chars().count() as i32;
    let place = |name: &String| {
        if x > 76 && x + width(name) > WIDTH as i32 {
            (x, y) = (76, y + LINE_OF_NAMES as i32);
        }
        let place = (x, y);
        x += width(name);
        place
    };
    names.iter().map(place).collect()
}

/// Returns the height of the names of the curves.
pub(super) fn height_of(names: &[String]) -> u32 {
    places_of(names).last().map_or(0, |(_, y)| *y as u32 + 8)
}

/// Draws the names of the curves above them.
pub(super) fn draw_names(area: &Area<'_>, names: &[String]) -> Drawn {
    for (i, (name, (x, y))) in names.iter().zip(places_of(names)).enumerate() {
        area.draw(&PathElement::new([(x, y), (x + 18, y)], colour(i).stroke_width(2)))?;
        area.draw(&Text::new(name.clone(), (x + 24, y - 8), TEXT))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_that_do_not_fit_begin_a_line() {
        let names = |number| vec!["a-policy-with-a-long-name".to_string(); number];
        assert_eq!(height_of(&[]), 0);
        assert_eq!(height_of(&names(3)), height_of(&names(1)));
        assert!(height_of(&names(5)) > height_of(&names(3)));
        let right = |(x, _): &(i32, i32)| x + 8 * 25;
        assert!(places_of(&names(9)).iter().all(|place| right(place) <= WIDTH as i32));
    }
}
