//! Colour and marker of each series. A controller has the same style in every figure and report;
//! other variants of a controller get unused styles. The colours are distinct for colour-blind
//! readers, and no series is distinguished by colour alone.

use leeward_outcome::results::Results;
use leeward_outcome::table::{Row, Table};

/// Style of a variant on a light page, for figures that are drawn elsewhere.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VariantStyle {
    /// The variant's label.
    pub label: String,
    /// Colour, such as `#0b62a8`.
    pub color: String,
    /// Number of the marker's shape, 0 to 7.
    pub marker: usize,
}

/// Styles of the variants in `results`, in order of appearance.
pub fn variant_styles(results: &Results) -> Vec<VariantStyle> {
    let colors = light_colors();
    let variant_style = |(label, style): (String, SeriesStyle)| VariantStyle {
        label,
        color: colors.get(style.color).copied().unwrap_or("#000000").into(),
        marker: style.marker,
    };
    Palette::new(results).labels.into_iter().map(variant_style).collect()
}

/// Colours of series without a controller, the most different from the controllers' colours first.
pub fn extra_colors() -> Vec<&'static str> {
    let colors = light_colors();
    EXTRA_COLORS.iter().filter_map(|index| colors.get(*index).copied()).collect()
}

/// The colours of `style.css` on a light page.
fn light_colors() -> Vec<&'static str> {
    let style = include_str!("style.css");
    let color = |index: usize| {
        let (_, rest) = style.split_once(&format!(".c{index} {{ --c: light-dark("))?;
        rest.split_once(',').map(|(light, _)| light)
    };
    (0..).map_while(color).collect()
}

/// Style of a series: indices of the style sheet's colours (`c0`…) and of the marker shapes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct SeriesStyle {
    pub(crate) color: usize,
    pub(crate) marker: usize,
}

impl SeriesStyle {
    /// The CSS class that sets the colour.
    pub(crate) fn class(self) -> String {
        format!("c{}", self.color)
    }

    /// Style of the `index`th series without a controller.
    ///
    /// Such series get the colours of the rarest controllers, and never the grey of the
    /// uncontrolled plant.
    pub(crate) fn nth(index: usize) -> SeriesStyle {
        SeriesStyle { color: EXTRA_COLORS[index % EXTRA_COLORS.len()], marker: 1 + index % (MARKERS - 1) }
    }

    /// A style that differs as much as possible from those in `used`.
    fn least_similar(used: &[SeriesStyle], index: usize) -> SeriesStyle {
        let color = EXTRA_COLORS.into_iter().find(|color| !used.iter().any(|style| style.color == *color));
        let marker = (1..MARKERS).find(|marker| !used.iter().any(|style| style.marker == *marker));
        let nth = SeriesStyle::nth(index);
        SeriesStyle { color: color.unwrap_or(nth.color), marker: marker.unwrap_or(nth.marker) }
    }
}

/// Colours of `style.css`: first those that are unlike the common controllers' colours, then the
/// others.
const EXTRA_COLORS: [usize; 9] = [8, 6, 5, 4, 9, 7, 2, 3, 1];
/// Number of shapes in `chart::marks`.
pub(crate) const MARKERS: usize = 8;

fn controller_style(name: &str) -> Option<SeriesStyle> {
    let index = match name {
        "none" => 0,
        "breakwater" => 1,
        "dagor" => 2,
        "seda" => 3,
        "codel" => 4,
        "window" => 5,
        "throttle" => 6,
        "gradient" => 7,
        _ => return None,
    };
    Some(SeriesStyle { color: index, marker: index })
}

/// Styles of one report's controllers and variants.
#[derive(Clone, Debug)]
pub(crate) struct Palette {
    labels: Vec<(String, SeriesStyle)>,
}

impl Palette {
    /// Gives every variant in `results` its style, in order of appearance.
    pub(crate) fn new(results: &Results) -> Palette {
        let tables = [Table::Points, Table::Windows, Table::Shifts].into_iter();
        let mut variants: Vec<(&String, &String)> = Vec::new();
        for run in tables.flat_map(|table| table.rows(results)).map(Row::run) {
            let pair = (&run.controller, &run.label);
            if !variants.contains(&pair) {
                variants.push(pair);
            }
        }
        // A controller's style goes to the variant with its name, or else to its first variant.
        let mut styles: Vec<Option<SeriesStyle>> = vec![None; variants.len()];
        for index in 0..variants.len() {
            let controller = variants[index].0;
            let owner = variants.iter().position(|(own, label)| own == &controller && label == &controller);
            let owner = owner.or_else(|| variants.iter().position(|(own, _)| own == &controller));
            if owner == Some(index) {
                styles[index] = controller_style(controller);
            }
        }
        for index in 0..variants.len() {
            if styles[index].is_none() {
                let used: Vec<SeriesStyle> = styles.iter().flatten().copied().collect();
                styles[index] = Some(SeriesStyle::least_similar(&used, index));
            }
        }
        let labels =
            variants.iter().zip(styles).filter_map(|((_, label), style)| Some(((*label).clone(), style?))).collect();
        Palette { labels }
    }

    /// Style of the `index`th series, called `name`, of a plot with one series per `field`.
    pub(crate) fn style(&self, field: &str, name: &str, index: usize) -> SeriesStyle {
        let known = match field {
            "label" => self.labels.iter().find(|(label, _)| label == name).map(|(_, look)| *look),
            "controller" => controller_style(name),
            _ => None,
        };
        known.unwrap_or_else(|| SeriesStyle::nth(index))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use leeward_outcome::results::{PointRow, RunKey};

    #[test]
    fn variant_styles_match_the_colours_of_the_page() {
        let run = RunKey::new("breakwater", "breakwater", 1);
        let results = Results { points: vec![PointRow { run, ..PointRow::default() }], ..Results::default() };
        let expected = VariantStyle { label: "breakwater".into(), color: "#0b62a8".into(), marker: 1 };
        assert_eq!(variant_styles(&results), [expected]);
        assert_eq!(light_colors().len(), EXTRA_COLORS.len() + 1);
        assert_eq!(extra_colors().len(), EXTRA_COLORS.len());
    }

    #[test]
    fn controllers_keep_their_colour_and_variants_differ() {
        let point =
            |controller: &str, label: &str| PointRow { run: RunKey::new(controller, label, 1), ..PointRow::default() };
        let points = vec![
            point("breakwater", "credits only"),
            point("breakwater", "breakwater"),
            point("seda", "seda"),
            point("none", "none"),
        ];
        let palette = Palette::new(&Results { points, ..Results::default() });
        let color = |label: &str| palette.style("label", label, 0).color;
        assert_eq!((color("breakwater"), color("seda"), color("none")), (1, 3, 0));
        let spare = palette.style("label", "credits only", 0);
        assert!(![0, 1, 3].contains(&spare.color) && ![0, 1, 3].contains(&spare.marker));
    }
}
